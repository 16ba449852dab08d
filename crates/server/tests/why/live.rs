//! A real server on a small random model with a chat template, and a client of it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;

use engine::{Engine, EngineOptions};
use package::Package;
use serde_json::Value;
use server::ServerOptions;

/// Tokens of the model's context.
pub(crate) const CONTEXT: usize = 4096;

/// What the template sees as today.
pub(crate) const DATE: &str = "2026-11-29";

/// Prints a date and a variable, declares tools, and trims what users say.
const TEMPLATE: &str = "\
{{ strftime_now('%Y') }} {{ style | default('plain') }}\n\
{% for tool in tools or [] %}{{ tool | tojson }}\n{% endfor %}\
{% for message in messages %}<{{ message.role }}>\
{% if message.role == 'user' %}{{ message.content | trim }}{% else %}{{ message.content }}\
{% endif %}{% for call in message.tool_calls or [] %}{{ call.function | tojson }}{% endfor %}\n\
{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";

pub(crate) struct Live {
    pub(crate) package: Arc<Package>,
    address: SocketAddr,
}

/// The small random llama of the engine's tests, with room for conversations and a template.
pub(crate) fn package() -> Package {
    let goldens = Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/tests/goldens");
    let source = goldens.join("llama-gqa2-biased");
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["model.safetensors", "merges.txt", "vocab.json"] {
        std::fs::copy(source.join(name), folder.path().join(name)).expect("copied");
    }
    let config = std::fs::read_to_string(source.join("config.json")).expect("a config");
    let mut config: Value = serde_json::from_str(&config).expect("JSON");
    config["max_position_embeddings"] = Value::from(CONTEXT);
    std::fs::write(folder.path().join("config.json"), config.to_string()).expect("written");
    std::fs::write(folder.path().join("chat_template.jinja"), TEMPLATE).expect("written");
    // Files stay mapped after the folder is gone.
    Package::open(folder.path()).expect("a package")
}

impl Live {
    pub(crate) fn start() -> Live {
        let package = Arc::new(package());
        let options = EngineOptions {
            threads: Some(1),
            kv_bytes: Some(256 << 20),
            ..EngineOptions::default()
        };
        let engine = Engine::start(package.clone(), options, &|_, _| {}).expect("an engine");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("a listener for a runtime");
        let address = listener.local_addr().expect("an address");
        let options =
            ServerOptions { template_date: Some(DATE.to_owned()), ..ServerOptions::default() };
        let served = package.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        // Ends with the test's process.
        std::thread::spawn(move || {
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
                server::serve(listener, engine, served, options, std::future::pending()).await;
            })
        });
        Live { package, address }
    }

    /// The answer to a request of either kind; it must be one.
    pub(crate) fn ask(&self, body: &Value) -> Value {
        let (status, answer) = self.send(body);
        assert_eq!(status, 200, "{body}: {answer}");
        answer
    }

    /// The error for a request of either kind; it must be the request's fault.
    pub(crate) fn refusal(&self, body: &Value) -> Value {
        let (status, mut answer) = self.send(body);
        assert_eq!(status, 400, "{body}: {answer}");
        answer["error"].take()
    }

    fn send(&self, body: &Value) -> (u16, Value) {
        let path =
            if body["prompt"].is_null() { "/v1/chat/completions" } else { "/v1/completions" };
        let body = body.to_string();
        let mut stream = TcpStream::connect(self.address).expect("a connection");
        write!(
            stream,
            "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        )
        .expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let (head, answer) = answer.split_once("\r\n\r\n").expect("a body");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        (status.expect("a status"), serde_json::from_str(answer).expect("JSON"))
    }
}
