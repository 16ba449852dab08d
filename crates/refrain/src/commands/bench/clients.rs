//! What clients see of a server. One alone: starting it, a long prompt that is new, the same with
//! another last question, and the same again. Several at once: a shared system prompt that is new,
//! and other questions after it.

use std::sync::Barrier;
use std::time::Instant;

use package::Tokenizer;

use super::engine::mix;
use super::run::Test;
use super::servers::Server;
use crate::failure::Failure;

/// Tokens of one client's long prompt, nearly.
const LONG_TOKENS: usize = 3_764;
/// Tokens of several clients' system prompt, nearly, and of each answer.
const SYSTEM_TOKENS: usize = 942;
const ANSWER_TOKENS: u32 = 64;
/// Tokens that a server must have room for, for one client and for each of several.
pub(super) const CONTEXT: u32 = 8_192;
pub(super) const CONTEXT_OF_EACH: u32 = 2_048;
const WORDS: [&str; 24] = [
    " river", " the", " stone", " and", " light", " of", " under", " a", " bridge", " slowly",
    " walks", " when", " morning", " comes", " with", " two", " birds", " over", " water", " she",
    " said", " nothing", " more", " then",
];
const QUESTIONS: [&str; 2] = [
    "what does she see over the water in the morning?",
    "who walks under the bridge when morning comes?",
];

/// Texts that no other repetition has.
pub(super) struct Texts {
    long: String,
    system: String,
}

impl Texts {
    pub(super) fn new(tokenizer: &Tokenizer, repetition: u32) -> Result<Texts, Failure> {
        let begin = |what: &str| format!("{what} {repetition}.");
        let long = text(tokenizer, begin("Chapter"), repetition, LONG_TOKENS)?;
        let system = text(tokenizer, begin("Instructions"), repetition, SYSTEM_TOKENS)?;
        Ok(Texts { long, system })
    }
}

/// `text` and more, up to about so many tokens.
fn text(
    tokenizer: &Tokenizer,
    mut text: String,
    stream: u32,
    tokens: usize,
) -> Result<String, Failure> {
    for index in 0..=tokens as u32 {
        // A word is a token or two; counting is only worth it near the end.
        let near = index as usize * 2 >= tokens && index % 16 == 0;
        if near && tokenizer.encode(&text, false).map_err(Failure::new)?.ids.len() >= tokens {
            break;
        }
        text += WORDS[(mix(stream, index) % WORDS.len() as u64) as usize];
    }
    Ok(text)
}

/// All that one client sees of a server that was just started.
pub(super) fn one(server: &Server, texts: &Texts) -> Result<Vec<(Test, f64)>, Failure> {
    let mut results = vec![(Test::Start, server.start.as_secs_f64() * 1e3)];
    for (test, question) in [(Test::Cold, 0), (Test::OtherQuestion, 1), (Test::Repeat, 1)] {
        let start = Instant::now();
        server.ask(&texts.long, QUESTIONS[question], 1).map_err(Failure::new)?;
        results.push((test, start.elapsed().as_secs_f64() * 1e3));
    }
    if let Some(bytes) = server.peak_bytes() {
        results.push((Test::PeakMemory, bytes as f64 / f64::from(1 << 20)));
    }
    Ok(results)
}

/// What so many clients at once see of a server that was just started.
pub(super) fn several(
    server: &Server,
    clients: u16,
    texts: &Texts,
) -> Result<Vec<(Test, f64)>, Failure> {
    let mut results = Vec::new();
    for (test, question) in [
        (Test::ClientsCold { clients }, QUESTIONS[0]),
        (Test::ClientsWarm { clients }, QUESTIONS[1]),
    ] {
        let questions = (0..clients).map(|client| format!("Client {client} asks: {question}"));
        let questions = questions.collect::<Vec<_>>();
        results.push((test, ask_together(server, &texts.system, &questions)?));
    }
    Ok(results)
}

/// Asks all questions about a text at once; milliseconds until the last answer.
fn ask_together(server: &Server, text: &str, questions: &[String]) -> Result<f64, Failure> {
    let ready = &Barrier::new(questions.len() + 1);
    std::thread::scope(|scope| {
        let mut asking = Vec::new();
        for question in questions {
            asking.push(scope.spawn(move || {
                ready.wait();
                server.ask(text, question, ANSWER_TOKENS)
            }));
        }
        ready.wait();
        let start = Instant::now();
        for client in asking {
            let answer = client.join().unwrap_or_else(|_| Err("a client panicked".to_owned()));
            answer.map_err(Failure::new)?;
        }
        Ok(start.elapsed().as_secs_f64() * 1e3)
    })
}
