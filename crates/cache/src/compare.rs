//! Comparing a prompt with one held sequence: the part of a verdict that needs no tree.

use crate::verdict::{Reason, Stop, TokenText};

/// Tokens past the difference that are looked at, on either side.
pub(crate) const COMPARED_TOKENS_MAX: usize = 32_768;
/// Skipped tokens, on both sides together, that a resynchronization may cost. Its time grows with
/// the square: 192 is some 18,000 steps, half of what a lookup may take.
const EDITS_MAX: i32 = 192;
/// Identical tokens in a row that are no coincidence when they stand at shifted positions.
const SHIFTED_RUN_MIN: i32 = 3;

/// How many tokens `a` and `b` have in common from their start.
pub(crate) fn common_prefix(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// Where reuse of a held sequence stops for a prompt, and why: `end_of_prompt`, `end_of_cached`
/// or `different_token`.
///
/// The last token of a prompt is always computed, so a prompt whose other tokens are all held
/// stops with `end_of_prompt`, whether or not the held sequence goes on, and how.
///
/// ```
/// let stop = cache::compare(&[1, 2, 3, 4, 5], &[1, 2, 9, 4, 5]);
/// assert_eq!((stop.reason, stop.at), (cache::Reason::DifferentToken, 2));
/// assert_eq!(stop.identical_after, Some(2));
/// ```
pub fn compare(cached: &[u32], request: &[u32]) -> Stop {
    let common = common_prefix(cached, request);
    let reusable = request.len().saturating_sub(1);
    if common > reusable || (common == reusable && common > 0) || request.is_empty() {
        return Stop::new(Reason::EndOfPrompt, reusable);
    }
    if common == cached.len() {
        return Stop::new(Reason::EndOfCached, common);
    }
    difference(common, &cached[common..], &request[common..])
}

/// The stop at a difference: `cached` and `request` go on from position `at` with other tokens.
pub(crate) fn difference(at: usize, cached: &[u32], request: &[u32]) -> Stop {
    Stop {
        cached: cached.first().map(|&id| TokenText::from(id)),
        request: request.first().map(|&id| TokenText::from(id)),
        identical_after: Some(identical_after(cached, request)),
        ..Stop::new(Reason::DifferentToken, at)
    }
}

/// How far a path of [`identical_after`] gets on its diagonal.
#[derive(Clone, Copy)]
struct Reached {
    /// The position in `request` after it.
    row: i32,
    /// The identical tokens on it that count.
    counted: i32,
}

/// How many tokens of `request` are also in `cached`, in the same order, although both begin with
/// another token: a lower bound, found with at most [`EDITS_MAX`] skipped tokens.
///
/// Myers' greedy algorithm ("An O(ND) difference algorithm and its variations", 1986, section 4):
/// `reached[k]` is how far into `request` a path with `edits` skips gets on diagonal `k` (position
/// in `request` less position in `cached`). Unlike in a diff, a path may end anywhere, since what
/// is held usually goes on with an answer; the best path is the one with the most identical tokens.
fn identical_after(cached: &[u32], request: &[u32]) -> usize {
    let cached = &cached[..cached.len().min(COMPARED_TOKENS_MAX)];
    let request = &request[..request.len().min(COMPARED_TOKENS_MAX)];
    if !may_share(cached, request) {
        return 0;
    }
    let (rows, columns) = (request.len() as i32, cached.len() as i32);
    let shorter = rows.min(columns);
    let edits_max = EDITS_MAX.min(rows + columns);
    let slot = |diagonal: i32| (diagonal + edits_max + 1) as usize;
    let unreached = Reached { row: i32::MIN / 2, counted: 0 };
    let mut reached = vec![unreached; 2 * edits_max as usize + 3];
    // Makes the first step of the loop start at position 0 on diagonal 0.
    reached[slot(1)].row = 0;
    let mut best = 0;
    for edits in 0..=edits_max {
        // Diagonals that lie in the table, of those with the parity of `edits`.
        let below = (edits - columns).max(0);
        let above = (edits - rows).max(0);
        let (first, last) = (-edits + (below + 1) / 2 * 2, edits - (above + 1) / 2 * 2);
        for diagonal in (first..=last).step_by(2) {
            let skip_request = reached[slot(diagonal - 1)];
            let skip_cached = reached[slot(diagonal + 1)];
            let from = if skip_request.row + 1 > skip_cached.row {
                Reached { row: skip_request.row + 1, ..skip_request }
            } else {
                skip_cached
            };
            let (row, column) = (from.row, from.row - diagonal);
            let here = &mut reached[slot(diagonal)];
            if row < 0 || row > rows || column < 0 || column > columns {
                *here = unreached;
                continue;
            }
            let run = common_prefix(&request[row as usize..], &cached[column as usize..]) as i32;
            let at_an_end = row + run == rows || column + run == columns;
            let counts = diagonal == 0 || run >= SHIFTED_RUN_MIN || at_an_end;
            let counted = from.counted + if counts { run } else { 0 };
            *here = Reached { row: row + run, counted };
            best = best.max(counted);
        }
        // Most of the rest is found, and the skips so far explain what is missing of it: more of
        // them would only hunt for luck.
        if 2 * best > shorter && 2 * (shorter - best) <= edits {
            break;
        }
    }
    best as usize
}

/// Whether some id may be in both; when not, there is nothing that skipping could find. Ids are
/// told apart by their last bits, which takes one pass.
fn may_share(cached: &[u32], request: &[u32]) -> bool {
    const BITS: u32 = 1 << 15;
    let mut seen = [0_u64; BITS as usize / 64];
    let place = |id: u32| ((id % BITS / 64) as usize, 1 << (id % 64));
    for (word, bit) in cached.iter().map(|&id| place(id)) {
        seen[word] |= bit;
    }
    request.iter().map(|&id| place(id)).any(|(word, bit)| seen[word] & bit != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn after(cached: &[u32], request: &[u32]) -> Option<usize> {
        compare(cached, request).identical_after
    }

    #[test]
    fn the_end_of_either_is_told_from_a_difference() {
        let reason = |cached: &[u32], request: &[u32]| {
            let stop = compare(cached, request);
            (stop.reason, stop.at)
        };
        assert_eq!(reason(&[1, 2, 3], &[1, 2, 3]), (Reason::EndOfPrompt, 2));
        assert_eq!(reason(&[1, 2, 3, 4], &[1, 2, 3]), (Reason::EndOfPrompt, 2));
        assert_eq!(reason(&[1, 2], &[1, 2, 3]), (Reason::EndOfPrompt, 2));
        assert_eq!(reason(&[1, 2], &[1, 2, 3, 4]), (Reason::EndOfCached, 2));
        assert_eq!(reason(&[1, 9], &[1, 2, 3, 4]), (Reason::DifferentToken, 1));
        assert_eq!(reason(&[9], &[1]), (Reason::DifferentToken, 0));
        assert_eq!(reason(&[], &[1]), (Reason::EndOfCached, 0));
        assert_eq!(reason(&[], &[]), (Reason::EndOfPrompt, 0));
    }

    #[test]
    fn what_follows_a_changed_inserted_or_removed_token_is_found() {
        assert_eq!(after(&[1, 2, 3, 4, 5], &[1, 9, 3, 4, 5]), Some(3), "changed");
        assert_eq!(after(&[1, 2, 3, 4, 5], &[1, 9, 2, 3, 4, 5]), Some(4), "inserted");
        assert_eq!(after(&[1, 2, 3, 4, 5], &[1, 3, 4, 5]), Some(3), "removed");
        assert_eq!(after(&[1, 2, 3, 4, 5], &[7, 8, 6, 9, 10]), Some(0), "unrelated");
        // Most of a short prompt changed: skipping all of it is no better explanation.
        let cached = [1, 10, 11, 12, 13, 14, 15, 2, 3, 4, 5, 6, 7];
        assert_eq!(after(&cached, &[1, 20, 21, 22, 23, 24, 25, 2, 3]), Some(2));
    }

    /// The longest common subsequence, by the textbook's table.
    fn longest_common_subsequence(a: &[u32], b: &[u32]) -> usize {
        let mut row = vec![0; b.len() + 1];
        for x in a {
            let mut diagonal = 0;
            for (column, y) in b.iter().enumerate() {
                let above = row[column + 1];
                let longest = if x == y { diagonal + 1 } else { above.max(row[column]) };
                diagonal = above;
                row[column + 1] = longest;
            }
        }
        row[b.len()]
    }

    proptest! {
        #[test]
        fn it_counts_no_more_than_there_is(
            cached in prop::collection::vec(0_u32..5, 0..60),
            request in prop::collection::vec(0_u32..5, 1..60),
        ) {
            let stop = compare(&cached, &request);
            prop_assert_eq!(stop.at, common_prefix(&cached, &request).min(request.len() - 1));
            if let Some(after) = stop.identical_after {
                let rest = (&cached[stop.at..], &request[stop.at..]);
                prop_assert!(after <= longest_common_subsequence(rest.0, rest.1));
            }
        }

        #[test]
        fn an_id_in_both_is_seen(
            cached in prop::collection::vec(any::<u32>(), 1..40),
            request in prop::collection::vec(any::<u32>(), 1..40),
        ) {
            prop_assert!(may_share(&cached, &[request.as_slice(), &cached[..1]].concat()));
            prop_assert!(!may_share(&cached, &[]) && !may_share(&[], &request));
        }

        #[test]
        fn one_edited_span_hides_nothing(
            prefix in 1_usize..40, removed in 0_usize..60, added in 0_usize..60,
            after in 1_usize..400, answer in 0_usize..400,
        ) {
            prop_assume!(removed + added > 0);
            let id = |kind: u32, count: usize| (0..count as u32).map(move |i| 10_000 * kind + i);
            let rest = || id(3, after);
            let cached: Vec<_> = id(0, prefix).chain(id(1, removed)).chain(rest())
                .chain(id(4, answer)).collect();
            let request: Vec<_> = id(0, prefix).chain(id(2, added)).chain(rest()).collect();
            let stop = compare(&cached, &request);
            if request.len() > prefix + 1 {
                prop_assert_eq!(stop.reason, Reason::DifferentToken);
                prop_assert_eq!(stop.identical_after, Some(after));
            }
        }
    }
}
