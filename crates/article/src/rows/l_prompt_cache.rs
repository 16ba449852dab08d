//! The prompt cache.

use crate::live::{incident, pair, prefix, runtime, sharing, steps};
use crate::row::Check::Live;
use crate::row::letters::{D, S, T, X};
use crate::row::{Row, row};

pub(super) const ROWS: &[Row] = &[
    row(
        133,
        &[S, D],
        "KV cache and prompt cache are two things, two names",
        Live(steps::two_caches),
    ),
    row(134, &[S], "it holds K and V of prefixes: they are not recomputed", Live(prefix::kept)),
    row(135, &[S], "it holds no answers: same prefix, another answer", Live(prefix::no_answers)),
    row(136, &[S], "a hit is the longest common prefix of token ids", Live(prefix::longest)),
    row(
        137,
        &[S],
        "after A's prefix, B computes only its own question",
        Live(prefix::own_question),
    ),
    row(138, &[S], "reuse stops at the first different token", Live(prefix::stops)),
    row(139, &[S], "what is before it is reused", Live(prefix::before)),
    row(140, &[S], "all after it is computed again, equal or not", Live(prefix::after)),
    row(141, &[S], "one rewritten word stops it there", Live(pair::word)),
    row(142, &[T, S], "a clock in the prompt stops it at token 20 of 24", Live(pair::clock)),
    row(143, &[S], "so does another order of the tools", Live(pair::tools)),
    row(144, &[T, S], "so does white space", Live(pair::white_space)),
    row(145, &[D, S], "what is stable and long goes first", Live(incident::order)),
    row(146, &[S], "a request never changes another's K and V", Live(sharing::isolated)),
    row(147, &[S], "the prefix is looked up once, before prefill", Live(sharing::once)),
    row(148, &[S], "reuse does not change the answer", Live(sharing::same_answer)),
    row(149, &[S], "cached and uncached input are counted apart", Live(runtime::counted)),
    row(150, &[X], "a clock in the system prompt makes hits misses", Live(incident::clock)),
    row(151, &[S], "because the value is another each time", Live(incident::cause)),
    row(152, &[S], "moved to the end, it lets the rest hit again", Live(incident::moved)),
];
