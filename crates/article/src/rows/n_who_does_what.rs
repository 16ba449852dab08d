//! Who does what.

use crate::live::later;
use crate::row::Check::{Live, Package, Read};
use crate::row::letters::{C, D, S};
use crate::row::{Row, row};
use crate::subject::unwritten;

pub(super) const ROWS: &[Row] = &[
    row(163, &[D], "the publisher: weights, configuration, tokenizer", Read),
    row(164, &[S], "the runtime: load, attend, cache, batch, stream", Live(later)),
    row(165, &[D], "the application: messages, answers, tools, data", Read),
    row(166, &[C], "every trained matrix is there, the head is tied", Package(unwritten)),
    row(167, &[D], "configuration and tokenizer are not trained", Read),
    row(168, &[D], "open weights are not open code, data or training", Read),
    row(169, &[S], "deploying is one command; memory is told before", Live(later)),
    row(170, &[S], "the runtime does the matrices", Live(later)),
    row(171, &[S], "requests that run together share steps", Live(later)),
    row(172, &[S], "the queue and its limits can be seen", Live(later)),
    row(173, &[S], "memory for K and V has a budget", Live(later)),
    row(174, &[S], "beyond the context there is a clear error", Live(later)),
    row(175, &[S], "temperature, top-p and top-k", Live(later)),
    row(176, &[S], "server-sent events", Live(later)),
    row(177, &[S], "prompt cache and eviction are the server's", Live(later)),
    row(178, &[D], "a caller writes no KV cache code", Read),
    row(179, &[D], "what is left to the application's developer", Read),
    row(180, &[D, S], "what is left to who hosts it", Live(later)),
];
