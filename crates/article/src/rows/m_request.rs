//! A request, end to end.

use crate::live::{request, sharing, small};
use crate::row::Check::Live;
use crate::row::letters::{D, S};
use crate::row::{Row, row};

pub(super) const ROWS: &[Row] = &[
    row(
        153,
        &[S],
        "the client sends text or messages, no ids, no K and V",
        Live(request::messages),
    ),
    row(154, &[S], "the template is applied, then the text is tokenized", Live(request::template)),
    row(155, &[S], "then the prompt cache is looked into", Live(request::looked_up)),
    row(156, &[S], "prefill computes only what is not found there", Live(request::unmatched)),
    row(157, &[S], "decode adds one token at a time", Live(request::decode)),
    row(158, &[S], "the answer comes at once or as a stream", Live(request::both_ways)),
    row(159, &[S], "the stream's fragments are the whole text", Live(request::fragments)),
    row(160, &[S], "temperature and top-p do not touch the cache", Live(sharing::sampling)),
    row(161, &[S], "after the answer its KV cache is released", Live(sharing::released)),
    row(162, &[S, D], "what hits depends on the cache's policy too", Live(small::policy)),
];
