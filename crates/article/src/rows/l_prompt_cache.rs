//! The prompt cache.

use crate::live::later;
use crate::row::Check::Live;
use crate::row::letters::{D, S, T, X};
use crate::row::{Row, row};

pub(super) const ROWS: &[Row] = &[
    row(133, &[S, D], "KV cache and prompt cache are two things, two names", Live(later)),
    row(134, &[S], "it holds K and V of prefixes: they are not recomputed", Live(later)),
    row(135, &[S], "it holds no answers: same prefix, another answer", Live(later)),
    row(136, &[S], "a hit is the longest common prefix of token ids", Live(later)),
    row(137, &[S], "after A's prefix, B computes only its own question", Live(later)),
    row(138, &[S], "reuse stops at the first different token", Live(later)),
    row(139, &[S], "what is before it is reused", Live(later)),
    row(140, &[S], "all after it is computed again, equal or not", Live(later)),
    row(141, &[S], "one rewritten word stops it there", Live(later)),
    row(142, &[T, S], "a clock in the prompt stops it at token 20 of 24", Live(later)),
    row(143, &[S], "so does another order of the tools", Live(later)),
    row(144, &[T, S], "so does white space", Live(later)),
    row(145, &[D, S], "what is stable and long goes first", Live(later)),
    row(146, &[S], "a request never changes another's K and V", Live(later)),
    row(147, &[S], "the prefix is looked up once, before prefill", Live(later)),
    row(148, &[S], "reuse does not change the answer", Live(later)),
    row(149, &[S], "cached and uncached input are counted apart", Live(later)),
    row(150, &[X], "a clock in the system prompt makes hits misses", Live(later)),
    row(151, &[S], "because the value is another each time", Live(later)),
    row(152, &[S], "moved to the end, it lets the rest hit again", Live(later)),
];
