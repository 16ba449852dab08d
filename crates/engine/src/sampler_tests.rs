//! Sampling against plain definitions.

use proptest::prelude::*;

use super::*;

fn asking(sampling: &Sampling, prompt: &[u32]) -> Request {
    let request = Request::new("", prompt.to_vec(), cache::Namespace::public());
    Request { sampling: sampling.clone(), ..request }
}

fn sample(logits: &[f32], sampling: &Sampling, position: usize) -> u32 {
    let request = asking(sampling, &[]);
    let seed = sampling.seed.unwrap_or(1);
    let mut state = ChoiceState::new(&request, seed, 0, logits.len());
    Sampler::default().sample(logits, sampling, &mut state, position).unwrap()
}

/// Frequencies of many draws at successive positions.
fn frequencies(logits: &[f32], sampling: &Sampling) -> Vec<f64> {
    let draws = 20_000;
    let mut counts = vec![0.0; logits.len()];
    for position in 0..draws {
        counts[sample(logits, sampling, position) as usize] += 1.0 / draws as f64;
    }
    counts
}

fn assert_close(actual: &[f64], expected: &[f64]) {
    for (a, e) in actual.iter().zip(expected) {
        assert!((a - e).abs() < 0.015, "{actual:?} is not {expected:?}");
    }
}

fn softmax(logits: &[f32], temperature: f64) -> Vec<f64> {
    let weights: Vec<f64> = logits.iter().map(|&l| (f64::from(l) / temperature).exp()).collect();
    let total: f64 = weights.iter().sum();
    weights.iter().map(|w| w / total).collect()
}

#[test]
fn exp_is_within_two_units_in_the_last_place() {
    for step in 0..200_000 {
        let x = -f64::from(step) * 0.0035;
        let (own, oracle) = (exp_nonpositive(x), x.exp());
        assert!((own - oracle).abs() <= 2.0 * f64::EPSILON * oracle, "{x}: {own} {oracle}");
    }
    assert_eq!(exp_nonpositive(0.0), 1.0);
    assert_eq!(exp_nonpositive(f64::NEG_INFINITY), 0.0);
    assert_eq!(exp_nonpositive(f64::NAN), 0.0);
}

#[test]
fn draws_follow_the_softmax_at_each_temperature() {
    let logits = [0.0, 1.0, -1.0, 2.0];
    for temperature in [0.5f32, 1.0, 2.0] {
        let sampling = Sampling { temperature, ..Sampling::default() };
        let expected = softmax(&logits, f64::from(temperature));
        assert_close(&frequencies(&logits, &sampling), &expected);
    }
}

#[test]
fn filters_keep_what_their_definitions_say() {
    let logits: Vec<f32> = [0.1f32, 0.4, 0.2, 0.3].iter().map(|p| p.ln()).collect();
    let of = |sampling: Sampling| frequencies(&logits, &sampling);
    let default = Sampling::default;
    assert_close(&of(Sampling { top_k: 2, ..default() }), &[0.0, 4.0 / 7.0, 0.0, 3.0 / 7.0]);
    assert_close(&of(Sampling { top_p: 0.69, ..default() }), &[0.0, 4.0 / 7.0, 0.0, 3.0 / 7.0]);
    assert_close(
        &of(Sampling { top_p: 0.71, ..default() }),
        &[0.0, 4.0 / 9.0, 2.0 / 9.0, 3.0 / 9.0],
    );
    assert_close(&of(Sampling { min_p: 0.6, ..default() }), &[0.0, 4.0 / 7.0, 0.0, 3.0 / 7.0]);
    let both = Sampling { top_k: 3, top_p: 0.5, ..default() };
    assert_close(&of(both), &[0.0, 4.0 / 7.0, 0.0, 3.0 / 7.0]);
}

#[test]
fn penalties_and_bias_are_the_documented_sums() {
    let logits = [2.0f32, -1.0, 0.5, 3.0];
    let sampling = Sampling {
        repetition_penalty: 2.0,
        presence_penalty: 0.5,
        frequency_penalty: 0.25,
        logit_bias: vec![(2, 10.0)],
        ..Sampling::default()
    };
    let mut state = ChoiceState::new(&asking(&sampling, &[0, 0, 1]), 0, 0, 4);
    for token in [1, 3, 3] {
        state.accept(token).unwrap();
    }
    let mut sampler = Sampler::default();
    sampler.adjust(&logits, &sampling, &mut state).unwrap();
    // Token 0 is in the prompt only: divided. Token 1: -1 * 2 - 0.5 - 0.25. Token 3: twice.
    assert_eq!(sampler.adjusted, [1.0, -2.75, 10.5, 0.5]);
}

#[test]
fn a_draw_depends_on_seed_choice_and_position_alone() {
    let logits: Vec<f32> = (0..100).map(|i| (i as f32 * 0.37).sin()).collect();
    let sampling = Sampling { seed: Some(11), ..Sampling::default() };
    let all: Vec<u32> = (0..50).map(|position| sample(&logits, &sampling, position)).collect();
    let backwards: Vec<u32> =
        (0..50).rev().map(|position| sample(&logits, &sampling, position)).collect();
    assert!(all.iter().eq(backwards.iter().rev()));
    let other = Sampling { seed: Some(12), ..Sampling::default() };
    assert!((0..50).any(|position| sample(&logits, &other, position) != all[position]));
}

#[test]
fn ties_go_to_the_lowest_id() {
    assert_eq!(argmax(&[1.0, 3.0, 3.0, 2.0]), 1);
    let mut row = vec![0.0f32; 100];
    row[99] = 5.0;
    row[40] = 5.0;
    assert_eq!(argmax(&row), 40);
    let top = LogSoftmax::new(&row).top(3);
    assert_eq!(top.iter().map(|t| t.0).collect::<Vec<_>>(), [40, 99, 0]);
    let one = Sampling { top_k: 1, ..Sampling::default() };
    assert_eq!(sample(&row, &one, 3), 40);
}

#[test]
fn logprobs_are_a_log_softmax() {
    let logits = [0.3f32, -2.0, 4.0, 1.0];
    let row = LogSoftmax::new(&logits);
    for (id, probability) in softmax(&logits, 1.0).iter().enumerate() {
        assert!((f64::from(row.of(id as u32)) - probability.ln()).abs() < 1e-6);
    }
    assert_eq!(row.of(17), LOGPROB_NEVER);
    assert!(row.top(0).is_empty());
    assert_eq!(row.top(9).len(), 4);
}

fn any_logit() -> impl Strategy<Value = f32> {
    prop_oneof![
        8 => -50.0f32..50.0,
        1 => Just(f32::NAN),
        1 => Just(f32::INFINITY),
        1 => Just(f32::NEG_INFINITY),
        1 => any::<f32>(),
    ]
}

fn any_sampling() -> impl Strategy<Value = Sampling> {
    let temperature = prop_oneof![Just(0.0f32), 0.01f32..3.0, Just(1e-30f32)];
    let filters = (0usize..60, prop_oneof![Just(1.0f32), 0.01f32..1.0], 0.0f32..1.0);
    let penalties = (0.1f32..3.0, -2.0f32..2.0, -2.0f32..2.0);
    let bias = prop::collection::vec((0u32..50, prop_oneof![-100.0f32..100.0]), 0..4);
    (temperature, filters, penalties, any::<u64>(), bias).prop_map(
        |(temperature, (top_k, top_p, min_p), penalties, seed, logit_bias)| Sampling {
            temperature,
            top_k,
            top_p,
            min_p,
            repetition_penalty: penalties.0,
            presence_penalty: penalties.1,
            frequency_penalty: penalties.2,
            seed: Some(seed),
            logit_bias,
        },
    )
}

proptest! {
    /// Whatever the row holds: no panic, a valid id, the same one again, and never a token
    /// that cannot be drawn while another can.
    #[test]
    fn any_row_gives_a_valid_token(
        logits in prop::collection::vec(any_logit(), 1..300),
        sampling in any_sampling(),
        position in 0usize..10_000,
    ) {
        let token = sample(&logits, &sampling, position);
        prop_assert_eq!(token, sample(&logits, &sampling, position));
        prop_assert!((token as usize) < logits.len());
        let dead = |logit: f32| logit.is_nan() || logit == f32::NEG_INFINITY;
        prop_assert!(!dead(logits[token as usize]) || logits.iter().all(|&l| dead(l)));
        let row = LogSoftmax::new(&logits);
        prop_assert!(row.of(token).is_finite());
        prop_assert!(row.top(5).iter().all(|(_, logprob)| logprob.is_finite()));
    }

    /// The filters as written, by sorting everything.
    #[test]
    fn filters_equal_a_full_sort(
        logits in prop::collection::vec(-8.0f32..8.0, 1..600),
        top_k in 0usize..700,
        top_p in 0.05f32..1.0,
        position in 0usize..1000,
    ) {
        let sampling = Sampling { top_k, top_p, seed: Some(5), ..Sampling::default() };
        let mut order: Vec<usize> = (0..logits.len()).collect();
        order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]).then(a.cmp(&b)));
        order.truncate(if top_k == 0 { usize::MAX } else { top_k });
        let weights: Vec<f64> =
            order.iter().map(|&id| f64::from(logits[id] - logits[order[0]]).exp()).collect();
        let total: f64 = weights.iter().sum();
        let mut reached = 0.0;
        let kept = weights.iter().take_while(|&&weight| {
            let before = reached;
            reached += weight;
            // Leaves out only what surely lies beyond, rounding aside.
            before < f64::from(top_p) * total * (1.0 + 1e-9)
        });
        let kept = kept.count();
        let token = sample(&logits, &sampling, position) as usize;
        prop_assert!(order[..kept].contains(&token));
    }
}

#[test]
fn rows_that_nothing_can_be_drawn_from_are_known() {
    let never = f32::NEG_INFINITY;
    assert!(are_numbers(&[never, 0.5, f32::MAX]));
    assert!(are_numbers(&[f32::INFINITY, 0.5]));
    let mut long = vec![0.0; 1000];
    assert!(are_numbers(&long));
    long[777] = f32::from_bits(u32::MAX);
    for bad in [&[][..], &[never; 40], &[f32::INFINITY, never], &[f32::NAN; 3], &long] {
        assert!(!are_numbers(bad));
    }
}

/// A vocabulary of single digits, an end, and rows that prefer what may not follow.
#[test]
fn what_a_constraint_leaves_out_is_never_drawn() {
    let digits: Vec<String> = (0..10).map(|digit| digit.to_string()).collect();
    let tokens = digits.iter().map(|digit| (digit.as_bytes(), false));
    let tokens = tokens.chain([(&b"<end>"[..], true)]);
    let vocabulary = grammar::Vocabulary::new(tokens, &[10]).unwrap();
    let asked = grammar::Grammar::Regex("[13]{2}7".to_owned());
    let constraint = asked.compile(&vocabulary).unwrap();
    let mut logits = vec![0.0f32; 11];
    (logits[5], logits[10], logits[7]) = (9.0, 8.0, f32::NEG_INFINITY);
    for seed in 0..50 {
        for temperature in [0.0, 1.0] {
            for top_p in [0.9, 1.0] {
                let sampling = Sampling { temperature, top_p, ..Sampling::default() };
                let request =
                    Request { constraint: Some(constraint.clone()), ..asking(&sampling, &[]) };
                let mut state = ChoiceState::new(&request, seed, 0, logits.len());
                let mut sampler = Sampler::default();
                let mut draw = |row: &[f32], at| sampler.sample(row, &sampling, &mut state, at);
                let mut drawn = vec![draw(&logits, 0).unwrap(), draw(&logits, 1).unwrap()];
                assert!(drawn.iter().all(|token| [1, 3].contains(token)), "{drawn:?}");
                // The only one that may follow has no weight at all, which is an error.
                assert!(draw(&logits, 2).is_err());
                drawn.push(draw(&[1.0; 11], 2).unwrap());
                drawn.push(draw(&logits, 3).unwrap());
                assert_eq!(drawn[2..], [7, 10], "then the end");
            }
        }
    }
}
