//! Damaged weights: who computes with them is told, and who does not goes on.

use std::fs;
use std::sync::Arc;

use engine::{Engine, EngineError, Request};
use package::Package;
use safetensors::SafeTensors;

use crate::{folder, greedy, options, package, prompt, run, wait};

const MODEL: &str = "llama-mha-untied";

/// The small model with bytes of one tensor overwritten by 0xFF: as f32, NaN.
fn damaged(tensor: &str, range: impl Fn(usize) -> std::ops::Range<usize>) -> Engine {
    let copy = tempfile::tempdir().unwrap();
    for file in ["config.json", "merges.txt", "vocab.json"] {
        fs::copy(folder(MODEL).join(file), copy.path().join(file)).unwrap();
    }
    let mut bytes = fs::read(folder(MODEL).join("model.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let data = file.tensor(tensor).unwrap().data();
    let start = data.as_ptr() as usize - bytes.as_ptr() as usize;
    let range = range(data.len());
    bytes[start + range.start..start + range.end].fill(0xFF);
    fs::write(copy.path().join("model.safetensors"), bytes).unwrap();
    let package = Arc::new(Package::open(copy.path()).unwrap());
    Engine::start(package, options(), &|_, _| {}).unwrap()
}

#[test]
fn a_damaged_model_fails_every_request_and_lives_on() {
    let engine = damaged("model.norm.weight", |len| 0..len);
    let request = greedy(&prompt(0, 20), 4);
    for request in [
        request.clone(),
        Request { choices: 3, ..request.clone() },
        Request { prompt_logprobs: Some(2), ..request.clone() },
        Request { max_tokens: Some(0), ..request },
    ] {
        let failed = wait(engine.submit(request).unwrap()).unwrap_err();
        assert_eq!(failed, EngineError::NotNumbers);
        assert!(failed.to_string().contains("the weights are damaged"));
    }
    engine.shutdown();
    let stats = engine.stats();
    assert_eq!((stats.requests_failed, stats.requests_done, stats.pages_cached), (4, 0, 0));
    assert_eq!(stats.pages_free, stats.pages);
}

#[test]
fn a_damaged_row_fails_only_who_uses_it() {
    const BAD: u32 = 251;
    let vocab = package(MODEL).config.vocab;
    let engine = damaged("model.embed_tokens.weight", |len| {
        let row = len / vocab;
        BAD as usize * row..(BAD as usize + 1) * row
    });
    let whole = Engine::start(package(MODEL), options(), &|_, _| {}).unwrap();
    let good = greedy(&prompt(2, 20), 30);
    let expected = run(&whole, good.clone()).answers;
    let running: Vec<_> = (0..4).map(|_| engine.submit(good.clone()).unwrap()).collect();
    let bad = Request { choices: 2, ..greedy(&[3, BAD, 5], 30) };
    let failed = wait(engine.submit(bad).unwrap()).unwrap_err();
    assert_eq!(failed, EngineError::NotNumbers);
    for events in running {
        assert_eq!(wait(events).unwrap().answers, expected);
    }
    engine.shutdown();
    assert_eq!(engine.stats().requests_failed, 1);
}
