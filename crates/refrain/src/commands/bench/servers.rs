//! What a client sees of a server: starting it, a long prompt that is new, the same with another
//! last question, and the same again.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use engine::KvType;
use package::Tokenizer;
use serde_json::{Value, json};

use super::engine::mix;
use super::peer::{Peer, Setting};
use super::run::Test;
use crate::failure::Failure;

/// Tokens of the long prompt, nearly.
const PROMPT_TOKENS: usize = 3_764;
/// Tokens that a server must have room for.
const CONTEXT: u32 = 8_192;
/// How long a server may take to start, or to answer.
const PATIENCE: Duration = Duration::from_secs(120);
const WORDS: [&str; 24] = [
    " river", " the", " stone", " and", " light", " of", " under", " a", " bridge", " slowly",
    " walks", " when", " morning", " comes", " with", " two", " birds", " over", " water", " she",
    " said", " nothing", " more", " then",
];

/// Texts that no other repetition has: a long one with a question, and with another.
pub(super) struct Texts {
    long: String,
}

impl Texts {
    pub(super) fn new(tokenizer: &Tokenizer, repetition: u32) -> Result<Texts, Failure> {
        let mut long = format!("Chapter {repetition}.");
        for index in 0..=PROMPT_TOKENS as u32 {
            // A word is a token or two; counting is only worth it near the end.
            let near = index as usize * 2 >= PROMPT_TOKENS && index % 16 == 0;
            if near
                && tokenizer.encode(&long, false).map_err(Failure::new)?.ids.len() >= PROMPT_TOKENS
            {
                break;
            }
            long += WORDS[(mix(repetition, index) % WORDS.len() as u64) as usize];
        }
        Ok(Texts { long })
    }

    fn first(&self) -> String {
        format!(
            "{}\n\nQuestion: what does she see over the water in the morning?\nAnswer:",
            self.long
        )
    }

    fn second(&self) -> String {
        format!(
            "{}\n\nQuestion: who walks under the bridge, and what is said there?\nAnswer:",
            self.long
        )
    }
}

/// A running server, stopped when dropped.
struct Server {
    child: Child,
    address: SocketAddr,
    path: &'static str,
    tokens_field: &'static str,
}

impl Drop for Server {
    fn drop(&mut self) {
        // One that has gone by itself cannot be killed, and need not be.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Our own server: this program.
pub(super) fn ours(
    model: &Path,
    threads: u16,
    kv_type: Option<KvType>,
    texts: &Texts,
) -> Result<Vec<(Test, f64)>, Failure> {
    let start = Instant::now();
    let program = std::env::current_exe()?;
    let mut command = Command::new(program);
    command.arg("serve").arg(model).args(["--port", "0", "--threads", &threads.to_string()]);
    command.args(["--context", &CONTEXT.to_string()]);
    if let Some(kv_type) = kv_type {
        command.args(["--kv-type", kv_type.name()]);
    }
    let mut child = quiet(&mut command).stderr(Stdio::piped()).spawn()?;
    let said = child.stderr.take().ok_or_else(|| Failure::new("the server has no output"))?;
    let mut lines = BufReader::new(said).lines();
    let address = lines.by_ref().map_while(Result::ok).find_map(|line| {
        let (_, address) = line.split_once("listening on http://")?;
        address.split_whitespace().next()?.parse().ok()
    });
    let Some(address) = address else {
        let _ = child.kill();
        let _ = child.wait();
        return Err(Failure::new("our own server did not start"));
    };
    // The rest of what it says must be read, or it would wait.
    std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
    let server = Server { child, address, path: "/v1/completions", tokens_field: "max_tokens" };
    server.measure(start, texts)
}

/// A peer's server.
pub(super) fn theirs(
    peer: &Peer,
    model: &Path,
    threads: u16,
    setting: Setting,
    texts: &Texts,
) -> Result<Vec<(Test, f64)>, Failure> {
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let start = Instant::now();
    let mut command = peer.server(model, threads, setting, address.port(), CONTEXT);
    let child = quiet(&mut command).stderr(Stdio::null()).spawn()?;
    let server = Server { child, address, path: "/completion", tokens_field: "n_predict" };
    server.measure(start, texts)
}

fn quiet(command: &mut Command) -> &mut Command {
    command.stdin(Stdio::null()).stdout(Stdio::null())
}

impl Server {
    fn measure(mut self, start: Instant, texts: &Texts) -> Result<Vec<(Test, f64)>, Failure> {
        while let Err(error) = self.complete("Hello") {
            let gone = self.child.try_wait()?.is_some();
            if gone || start.elapsed() > PATIENCE {
                return Err(Failure::new(format!("a server did not start to answer: {error}")));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let mut results = vec![(Test::Start, start.elapsed().as_secs_f64() * 1e3)];
        for (test, text) in [
            (Test::Cold, texts.first()),
            (Test::OtherQuestion, texts.second()),
            (Test::Repeat, texts.second()),
        ] {
            let start = Instant::now();
            self.complete(&text).map_err(Failure::new)?;
            results.push((test, start.elapsed().as_secs_f64() * 1e3));
        }
        if let Some(bytes) = self.peak_bytes() {
            results.push((Test::PeakMemory, bytes as f64 / f64::from(1 << 20)));
        }
        Ok(results)
    }

    /// Asks for one token; the status must be 200.
    fn complete(&self, prompt: &str) -> Result<(), String> {
        let mut body = json!({"prompt": prompt, "temperature": 0, "cache_prompt": true});
        body[self.tokens_field] = Value::from(1);
        let body = body.to_string();
        let answer = self.post(&body).map_err(|error| error.to_string())?;
        match answer.split_whitespace().nth(1) {
            Some("200") => Ok(()),
            _ => Err(answer.lines().last().unwrap_or("an empty answer").to_owned()),
        }
    }

    fn post(&self, body: &str) -> std::io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&self.address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        write!(
            stream,
            "POST {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.path,
            self.address,
            body.len()
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    /// The most resident memory so far (`proc(5)`: `VmHWM`), in bytes.
    fn peak_bytes(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
        Some(kibibytes << 10)
    }
}
