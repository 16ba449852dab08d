use proptest::prelude::*;

use super::*;

/// The same by trying every end and every place.
fn repeated_by_trying(tokens: &[u32], most: usize) -> Option<Proposal> {
    for length in (MATCH_MIN..=MATCH_MAX.min(tokens.len())).rev() {
        let end = &tokens[tokens.len() - length..];
        for start in (0..tokens.len() - length).rev() {
            if &tokens[start..start + length] == end && most > 0 {
                let mut text = tokens.to_vec();
                for at in start + length..start + length + most {
                    let token = text[at];
                    text.push(token);
                }
                let tokens = text[tokens.len()..].to_vec();
                let (grounds, from) = (Grounds::Matched(length), Some(start + length));
                return Some(Proposal { tokens, grounds, from });
            }
        }
    }
    None
}

fn nothing(_: &[u32]) -> Vec<u32> {
    Vec::new()
}

proptest! {
    #[test]
    fn the_longest_end_is_found_where_it_was_last(
        tokens in prop_oneof![
            prop::collection::vec(0u32..3, 0..60),
            prop::collection::vec(0u32..20, 0..60),
        ],
        copied in (0usize..60, 0usize..30),
        most in 0..=GUESSED_MAX,
    ) {
        let mut tokens = tokens;
        let from = copied.0.min(tokens.len());
        let to = (from + copied.1).min(tokens.len());
        tokens.extend_from_within(from..to);
        prop_assert_eq!(repeated(&tokens, most), repeated_by_trying(&tokens, most));
    }

    /// Whatever the text and the draws: what is proposed is no longer than asked, chances are
    /// probabilities that fall, and what is held is proposed only after the very same tokens.
    #[test]
    fn proposals_keep_their_bounds(
        prompt in prop::collection::vec(0u32..4, 1..40),
        answer in prop::collection::vec(0u32..4, 0..80),
        held in prop::collection::vec(0u32..4, 0..80),
        mosts in prop::collection::vec(0..=GUESSED_MAX, 1..8),
    ) {
        let holder = [&prompt[..], &held[..]].concat();
        let continuation = |tokens: &[u32]| match holder.strip_prefix(tokens) {
            Some(rest) => rest[..rest.len().min(HELD_MAX)].to_vec(),
            None => Vec::new(),
        };
        let mut guesses = Guesses::default();
        let mut tokens = prompt;
        let mut rest = &answer[..];
        for most in mosts.into_iter().cycle() {
            let proposed = guesses.propose(&tokens, most, continuation).to_vec();
            prop_assert!(proposed.len() <= most);
            let chances: Vec<f64> = guesses.chances().collect();
            prop_assert_eq!(chances.len(), proposed.len());
            prop_assert!(chances.iter().all(|chance| (0.0..=1.0).contains(chance)));
            prop_assert!(chances.is_sorted_by(|a, b| a >= b));
            if guesses.proposal.as_ref().is_some_and(|it| it.grounds == Grounds::Held) {
                let both = [&tokens[..], &proposed[..]].concat();
                prop_assert!(holder.starts_with(&both));
            }
            let right = proposed.iter().zip(rest).take_while(|(a, b)| a == b).count();
            let Some((drawn, after)) = rest.split_at_checked(right + 1) else { break };
            guesses.learn(drawn);
            tokens.extend(drawn);
            rest = after;
        }
    }
}

#[test]
fn a_repeated_text_goes_on_as_before_and_a_loop_for_ever() {
    let tokens = [1, 2, 3, 4, 5, 6, 9, 2, 3];
    let proposal = repeated(&tokens, 3).unwrap();
    assert_eq!((&proposal.tokens[..], proposal.grounds), (&[4, 5, 6][..], Grounds::Matched(2)));
    let proposal = repeated(&[7, 8, 1, 2, 1, 2], 5).unwrap();
    assert_eq!(proposal.tokens, [1, 2, 1, 2, 1]);
    assert_eq!(repeated(&[1, 2, 3, 4], 8), None);
}

#[test]
fn a_copy_goes_on_after_a_word_more_or_less_or_another() {
    let text: Vec<u32> = (10..30).collect();
    // (drawn after a copy up to 15, tokens then expected): inserted, left out, replaced.
    for (drawn, expected) in [(&[90, 16][..], 17), (&[18], 19), (&[90, 17], 18)] {
        let mut guesses = Guesses::default();
        let mut tokens = [&text[..], &[13, 14, 15]].concat();
        assert_eq!(guesses.propose(&tokens, 3, nothing), [16, 17, 18]);
        guesses.learn(drawn);
        tokens.extend(drawn);
        assert_eq!(guesses.propose(&tokens, 2, nothing), [expected, expected + 1]);
    }
}

#[test]
fn guesses_that_fail_lose_their_chance_and_win_it_back() {
    let mut guesses = Guesses::default();
    let text = [5, 6, 7, 8, 5, 6];
    let mut first = |drawn: u32| {
        guesses.propose(&text, 4, nothing);
        let chance = guesses.chances().next().unwrap();
        guesses.learn(&[drawn]);
        chance
    };
    let begin = first(0);
    let low = (0..30).map(|_| first(0)).last().unwrap();
    assert!(low < 0.1 && low < begin, "{low}");
    let high = (0..30).map(|_| first(7)).last().unwrap();
    assert!(high > 0.8, "{high}");
}

#[test]
fn a_held_answer_is_followed_and_asked_for_again_after_another_token() {
    let mut guesses = Guesses::default();
    let asked = std::cell::Cell::new(0);
    let held = |tokens: &[u32]| {
        asked.set(asked.get() + 1);
        if tokens.len() < 6 { vec![20, 21, 22, 23] } else { Vec::new() }
    };
    assert_eq!(guesses.propose(&[1, 2], 3, held), [20, 21, 22]);
    assert_eq!(guesses.propose(&[1, 2, 20, 21], 3, held), [22, 23]);
    assert_eq!(asked.get(), 1);
    assert_eq!(guesses.propose(&[1, 2, 20, 21, 9], 3, held), [20, 21, 22]);
    assert!(guesses.propose(&[1, 2, 20, 21, 9, 8], 3, held).is_empty());
    assert!(guesses.propose(&[1, 2, 20, 21, 9, 8, 7], 3, held).is_empty());
    assert_eq!(asked.get(), 3);
}

#[test]
fn a_spoilt_proposal_is_whole_and_has_a_wrong_token() {
    let mut guesses = Guesses::default();
    guesses.propose(&[1, 2, 3], 4, |_| vec![4, 5]);
    guesses.spoil(&[1, 2, 3], 4, |below| 1 % below);
    assert_eq!(guesses.tokens(), [4, 2, 1, 2]);
    guesses.spoil(&[1, 2, 3], 0, |_| 0);
    assert_eq!(guesses.tokens().len(), 4, "what is there is not cut");
}
