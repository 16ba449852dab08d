//! Starting a server, ours or a peer's, and asking it over HTTP.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use engine::KvType;
use serde_json::{Value, json};

use super::peer::{Peer, Setting};
use super::run::Purpose;
use crate::failure::Failure;

/// How long a server may take to start, or to answer.
const PATIENCE: Duration = Duration::from_secs(120);

/// Whose server it is.
#[derive(Clone, Copy)]
pub(super) enum Whose<'a> {
    Ours(Option<KvType>),
    Theirs(&'a Peer, Setting),
}

/// A running server, stopped when dropped.
pub(super) struct Server {
    child: Child,
    address: SocketAddr,
    ours: bool,
    converses: bool,
    /// From starting it to its first answer.
    pub(super) start: Duration,
}

impl Drop for Server {
    fn drop(&mut self) {
        // One that has gone by itself cannot be killed, and need not be.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Whose<'_> {
    /// Starts the server, and waits until it answers.
    pub(super) fn start(self, purpose: Purpose<'_>) -> Result<Server, Failure> {
        let start = Instant::now();
        let mut server = match self {
            Whose::Ours(kv_type) => ours(purpose, kv_type)?,
            Whose::Theirs(peer, setting) => theirs(peer, setting, purpose)?,
        };
        while let Err(error) = server.complete("Hello", 1) {
            let gone = server.child.try_wait()?.is_some();
            if gone || start.elapsed() > PATIENCE {
                return Err(Failure::new(format!("a server did not start to answer: {error}")));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        server.start = start.elapsed();
        Ok(server)
    }
}

/// Our own server: this program.
fn ours(purpose: Purpose<'_>, kv_type: Option<KvType>) -> Result<Server, Failure> {
    let Purpose { model, threads, clients, context, converses } = purpose;
    let program = std::env::current_exe()?;
    let mut command = Command::new(program);
    command.arg("serve").arg(model).args(["--port", "0", "--threads", &threads.to_string()]);
    // Nothing may be found that an earlier run has left.
    command.args(["--cache-disk", "0"]);
    command.args(["--context", &context.to_string(), "--max-running", &clients.to_string()]);
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
    Ok(Server { child, address, ours: true, converses, start: Duration::ZERO })
}

/// A peer's server.
fn theirs(peer: &Peer, setting: Setting, purpose: Purpose<'_>) -> Result<Server, Failure> {
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let mut command = peer.server(purpose, setting, address.port())?;
    let child = quiet(&mut command).stderr(Stdio::null()).spawn()?;
    let converses = purpose.converses;
    Ok(Server { child, address, ours: false, converses, start: Duration::ZERO })
}

fn quiet(command: &mut Command) -> &mut Command {
    command.stdin(Stdio::null()).stdout(Stdio::null())
}

impl Server {
    /// Asks a question about a text: in a conversation, or in one text where the model knows no
    /// conversations.
    pub(super) fn ask(&self, text: &str, question: &str, tokens: u32) -> Result<(), String> {
        if !self.converses {
            return self.complete(&format!("{text}\n\nQuestion: {question}\nAnswer:"), tokens);
        }
        let messages = json!([
            {"role": "system", "content": text}, {"role": "user", "content": question}
        ]);
        let body = json!({"messages": messages, "max_tokens": tokens});
        self.answer("/v1/chat/completions", body, "/usage/completion_tokens", tokens)
    }

    /// Asks for a text to be continued.
    fn complete(&self, prompt: &str, tokens: u32) -> Result<(), String> {
        let (path, field, counted) = match self.ours {
            true => ("/v1/completions", "max_tokens", "/usage/completion_tokens"),
            false => ("/completion", "n_predict", "/tokens_predicted"),
        };
        self.answer(path, json!({"prompt": prompt, field: tokens}), counted, tokens)
    }

    /// Asks for so many tokens; the status must be 200, and the tokens as many.
    fn answer(
        &self,
        path: &str,
        mut body: Value,
        counted: &str,
        tokens: u32,
    ) -> Result<(), String> {
        body["temperature"] = Value::from(0);
        body["cache_prompt"] = Value::from(true);
        body["ignore_eos"] = Value::from(true);
        let answer = self.post(path, &body.to_string()).map_err(|error| error.to_string())?;
        let last = answer.lines().last().unwrap_or("an empty answer");
        if answer.split_whitespace().nth(1) != Some("200") {
            return Err(last.to_owned());
        }
        let (_, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
        let body: Value = serde_json::from_str(body).map_err(|error| error.to_string())?;
        match body.pointer(counted).and_then(Value::as_u64) {
            Some(count) if count == u64::from(tokens) => Ok(()),
            count => Err(format!("an answer of {count:?} tokens instead of {tokens}")),
        }
    }

    fn post(&self, path: &str, body: &str) -> std::io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&self.address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        write!(
            stream,
            "POST {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    /// The most resident memory so far (`proc(5)`: `VmHWM`), in bytes.
    pub(super) fn peak_bytes(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
        Some(kibibytes << 10)
    }
}
