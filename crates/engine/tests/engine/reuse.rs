//! What is reused, and what the verdict says of it.

use std::collections::HashSet;

use cache::Namespace;
use engine::{Engine, EngineOptions, Request};
use package::{PromptMap, Rendered, Span};

use crate::{Outcome, greedy, llama, options, prompt, run, start};

fn code(outcome: &Outcome) -> &'static str {
    outcome.verdict.stop.reason.code()
}

/// A small generator, so that a failing pair can be found again.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) as usize % limit
    }
}

/// Two hundred pairs of random prompts: reuse is the true common prefix, to the token, less
/// the last token of a prompt that was held whole.
#[test]
fn reuse_is_the_true_common_prefix_of_200_random_pairs() {
    let engine = start(EngineOptions { chunk_tokens: Some(24), ..options() });
    let mut numbers = Numbers(7);
    let mut seen = HashSet::new();
    for pair in 0..200 {
        let common = numbers.below(100);
        let random = |numbers: &mut Numbers, tokens| -> Vec<u32> {
            (0..tokens).map(|_| numbers.below(250) as u32).collect()
        };
        let shared = random(&mut numbers, common);
        let tails = (numbers.below(20), 1 + numbers.below(20));
        let mut first = [shared.clone(), random(&mut numbers, tails.0)].concat();
        let mut second = [shared, random(&mut numbers, tails.1)].concat();
        if first.is_empty() {
            first.push(1);
        }
        if numbers.below(8) == 0 {
            second = first.clone();
        }
        let equal = first.iter().zip(&second).take_while(|(a, b)| a == b).count();
        let namespace = Namespace::from_salt(&pair.to_string());
        run(&engine, Request { namespace, ..greedy(&first, 1) });
        let outcome = run(&engine, Request { namespace, ..greedy(&second, 1) });
        let expected = equal.min(second.len() - 1);
        assert_eq!(outcome.verdict.reused_tokens, expected, "{first:?} {second:?}");
        assert_eq!(outcome.tokens.cached_input, expected);
        assert_eq!(outcome.tokens.input, second.len() - expected);
        seen.insert(code(&outcome));
    }
    let all = ["end_of_prompt", "end_of_cached", "different_token"];
    assert!(all.iter().all(|reason| seen.contains(reason)), "{seen:?}");
}

#[test]
fn a_conversation_goes_on_from_all_but_the_last_drawn_token() {
    let engine = start(options());
    let first = run(&engine, greedy(&prompt(1, 37), 20));
    assert_eq!(code(&first), "first_request");
    let mut next = prompt(1, 37);
    next.extend(first.answers[0].ids());
    next.extend(prompt(9, 11));
    let second = run(&engine, greedy(&next, 20));
    assert_eq!((code(&second), second.verdict.reused_tokens), ("end_of_cached", 37 + 19));
    assert_eq!(second.verdict.reused_from.ram, 37 + 19);
    assert_eq!(second.timings.lost_ms, Some(0.0));
    let again = run(&engine, greedy(&next, 20));
    assert_eq!((code(&again), again.verdict.reused_tokens), ("end_of_prompt", next.len() - 1));
    assert_eq!(again.answers, second.answers);
    let times = &again.timings;
    for time in [times.queue_ms, times.lookup_ms, times.prefill_ms, times.ttft_ms] {
        assert!(time.is_some_and(|ms| ms >= 0.0), "{times:?}");
    }
    assert!(times.decode_ms.is_some() && times.restore_ms == Some(0.0));
}

#[test]
fn a_different_token_is_named_with_its_message_and_cost() {
    let package = llama();
    let engine = Engine::start(package.clone(), options(), &|_, _| {}).unwrap();
    let ask = |clock: &str| {
        let content = format!("It is {clock} now. Answer in one word.");
        let text = format!("<{content}>");
        let span = Span {
            range: 1..1 + content.len(),
            message: 0,
            role: "system".to_string(),
            start_char: 0,
        };
        let rendered = Rendered { text, spans: vec![span] };
        let encoding = package.tokenizer.encode(&rendered.text, false).unwrap();
        let map = PromptMap::new(&rendered, &encoding);
        run(&engine, Request { prompt_map: Some(map), ..greedy(&encoding.ids, 3) })
    };
    ask("10:01");
    let outcome = ask("10:02");
    assert_eq!(code(&outcome), "different_token");
    let stop = &outcome.verdict.stop;
    let texts = [&stop.cached, &stop.request].map(|t| t.clone().unwrap().text.unwrap());
    assert_eq!(texts, ["1", "2"]);
    assert_eq!((stop.message, stop.role.as_deref()), (Some(0), Some("system")));
    assert_eq!(stop.chars, Some([10, 11]));
    let identical = stop.identical_after.unwrap();
    assert!(identical > 5, "{stop:?}");
    assert!(outcome.timings.lost_ms.unwrap() > 0.0);
    assert_eq!(outcome.verdict.compared_with.as_deref(), Some("test"));
}

#[test]
fn namespaces_and_requests_without_cache_share_nothing() {
    let engine = start(options());
    let request = greedy(&prompt(4, 50), 2);
    let private = |salt| Request { namespace: Namespace::from_salt(salt), ..request.clone() };
    let disabled = run(&engine, Request { use_cache: false, ..request.clone() });
    assert_eq!(code(&disabled), "disabled_by_request");
    assert_eq!(disabled.timings.lookup_ms, None);
    assert_eq!(code(&run(&engine, private("a"))), "first_request");
    assert_eq!(code(&run(&engine, private("b"))), "first_request");
    assert_eq!(code(&run(&engine, request.clone())), "first_request");
    assert_eq!(code(&run(&engine, private("a"))), "end_of_prompt");

    let off = start(EngineOptions { prompt_cache: false, ..options() });
    for _ in 0..2 {
        assert_eq!(code(&run(&off, request.clone())), "disabled_by_request");
    }
    // The gauges are those of the last step, and final once the engine has ended.
    off.shutdown();
    let stats = off.stats();
    assert_eq!(stats.pages_free, stats.pages);
}

#[test]
fn a_public_prefix_is_taken_over_once_by_each_namespace_with_the_same_bits() {
    let engine = start(options());
    let rules = prompt(5, 70);
    run(&engine, Request { namespace: Namespace::shared(), ..greedy(&rules, 1) });
    let asked = [rules.clone(), prompt(6, 9)].concat();
    let ask = |salt: &str, prompt: &[u32]| {
        let namespace = Namespace::from_salt(salt);
        Request { namespace, logprobs: Some(3), ..greedy(prompt, 12) }
    };
    let computed = run(&engine, Request { use_cache: false, ..ask("a", &asked) });
    let from = |outcome: &Outcome| {
        let from = outcome.verdict.reused_from;
        (from.ram, from.disk, from.public)
    };
    for salt in ["a", "b"] {
        let first = run(&engine, ask(salt, &asked));
        assert_eq!((code(&first), from(&first)), ("end_of_cached", (64, 0, 64)));
        assert_eq!(first.answers, computed.answers);
        let again = run(&engine, ask(salt, &asked));
        assert_eq!((code(&again), from(&again)), ("end_of_prompt", (78, 0, 0)));
        assert_eq!(again.answers, computed.answers);
    }
    // Of what a namespace has of its own, the rest is taken over; a public prompt takes nothing.
    run(&engine, ask("c", &rules[..20]));
    let rest = run(&engine, ask("c", &asked));
    assert_eq!((from(&rest), &rest.answers), ((64, 0, 48), &computed.answers));
    let public = run(&engine, Request { namespace: Namespace::shared(), ..greedy(&rules, 1) });
    assert_eq!(from(&public), (69, 0, 0));
    engine.shutdown();
    assert_eq!(engine.stats().pages_in_use, 0);
}
