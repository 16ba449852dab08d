//! An HTTP client, as small as the rows need: one request on each connection.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::answer::Answer;
use crate::tally::Stop;

/// A longer reply is cut.
const REPLY_BYTES_MAX: usize = 16 << 20;
/// Longest wait for more of a reply.
const REPLY_TIME_MAX: Duration = Duration::from_secs(120);

/// What came back, whatever it is.
pub(super) struct Reply {
    pub(super) status: u16,
    /// The head, in lower case.
    head: String,
    pub(super) body: String,
    /// How many times something of it arrived.
    pub(super) arrivals: usize,
}

impl Reply {
    /// A header's value.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let line = self.head.lines().find(|line| line.split(':').next() == Some(name))?;
        Some(line[name.len() + 1..].trim())
    }

    pub(super) fn json(&self) -> Result<Value, Stop> {
        let status = self.status;
        serde_json::from_str(&self.body)
            .map_err(|error| Stop::failed(format!("a reply with status {status}"), error))
    }

    /// The `data` of server-sent events.
    pub(super) fn events(&self) -> Vec<&str> {
        self.body.lines().filter_map(|line| line.strip_prefix("data: ")).collect()
    }
}

/// Somebody who sends requests, in a namespace of the prompt cache of their own.
pub(super) struct User {
    address: SocketAddr,
    fields: Map<String, Value>,
}

impl User {
    pub(super) fn new(address: SocketAddr, fields: Map<String, Value>, number: usize) -> User {
        let mut fields = fields;
        fields.insert("cache_salt".to_owned(), Value::from(format!("user {number}")));
        User { address, fields }
    }

    pub(super) fn get(&self, path: &str) -> Result<Reply, Stop> {
        self.send(&format!("GET {path}"), "")
    }

    /// Sends `body` with the user's own fields where it does not have them.
    pub(super) fn post(&self, path: &str, body: &Value) -> Result<Reply, Stop> {
        let mut body = body.clone();
        for (name, value) in &self.fields {
            if body.get(name).is_none() {
                body[name] = value.clone();
            }
        }
        self.send(&format!("POST {path}"), &body.to_string())
    }

    fn send(&self, what: &str, body: &str) -> Result<Reply, Stop> {
        let failed = |error: std::io::Error| Stop::failed(what, error);
        let mut stream = TcpStream::connect(self.address).map_err(failed)?;
        stream.set_read_timeout(Some(REPLY_TIME_MAX)).map_err(failed)?;
        let head = format!(
            "{what} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).map_err(failed)?;
        stream.write_all(body.as_bytes()).map_err(failed)?;
        let (mut bytes, mut arrivals, mut buffer) = (Vec::new(), 0, vec![0; 1 << 16]);
        while bytes.len() < REPLY_BYTES_MAX {
            match stream.read(&mut buffer).map_err(failed)? {
                0 => break,
                count => bytes.extend_from_slice(&buffer[..count]),
            }
            arrivals += 1;
        }
        parse(&bytes, arrivals).ok_or_else(|| Stop::failed(what, "the reply is no HTTP"))
    }

    /// A completion of one prompt or several, each a text or token ids.
    pub(super) fn complete(&self, prompt: impl Into<Value>, more: Value) -> Result<Answer, Stop> {
        self.ask("/v1/completions", "prompt", prompt.into(), more)
    }

    /// The answer to a conversation.
    pub(super) fn chat(&self, messages: &Value, more: Value) -> Result<Answer, Stop> {
        self.ask("/v1/chat/completions", "messages", messages.clone(), more)
    }

    fn ask(&self, path: &str, field: &str, value: Value, more: Value) -> Result<Answer, Stop> {
        let mut body = more;
        body[field] = value;
        let reply = self.post(path, &body)?;
        if reply.status != 200 {
            return Err(Stop::failed(format!("POST {path}"), reply.body));
        }
        Ok(Answer(reply.json()?))
    }

    /// The server's token ids of a text.
    pub(super) fn ids(&self, text: &str) -> Result<Vec<u32>, Stop> {
        self.tokenize(&json!({"prompt": text}))
    }

    /// The server's token ids of a request for `/tokenize`.
    pub(super) fn tokenize(&self, body: &Value) -> Result<Vec<u32>, Stop> {
        let reply = self.post("/tokenize", body)?;
        let ids = reply.json()?["tokens"].take();
        serde_json::from_value(ids).map_err(|_| Stop::failed("POST /tokenize", reply.body))
    }
}

fn parse(bytes: &[u8], arrivals: usize) -> Option<Reply> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&bytes[..end]).ok()?.to_ascii_lowercase();
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let chunked = head.contains("transfer-encoding: chunked");
    let body = &bytes[end + 4..];
    let body = if chunked { unchunked(body)? } else { body.to_vec() };
    Some(Reply { status, head, body: String::from_utf8(body).ok()?, arrivals })
}

/// The content of a chunked body (RFC 9112, section 7.1).
fn unchunked(mut bytes: &[u8]) -> Option<Vec<u8>> {
    let mut content = Vec::new();
    loop {
        let end = bytes.windows(2).position(|window| window == b"\r\n")?;
        let size = std::str::from_utf8(&bytes[..end]).ok()?;
        let size = usize::from_str_radix(size.split(';').next()?.trim(), 16).ok()?;
        if size == 0 {
            return Some(content);
        }
        content.extend_from_slice(bytes.get(end + 2..end + 2 + size)?);
        bytes = bytes.get(end + 2 + size + 2..)?;
    }
}
