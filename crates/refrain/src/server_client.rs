//! Asking a running server.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};

use crate::failure::Failure;
use crate::server_arguments::ServerArguments;

/// Longest wait for an answer: a server does what it is asked between two steps.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(60);
const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);
/// A larger answer is refused: a prefix of a million tokens takes some 20 MB.
const ANSWER_BYTES_MAX: u64 = 256 << 20;
/// A larger file of certificates is not taken.
const CERTIFICATES_BYTES_MAX: u64 = 4 << 20;

/// Posts `body` to a path of the server, with the caller's salt, and returns what it answers.
pub(crate) fn post(
    server: &ServerArguments,
    path: &str,
    mut body: Map<String, Value>,
) -> Result<Map<String, Value>, Failure> {
    if let Some(salt) = &server.cache_salt {
        body.insert("cache_salt".to_owned(), salt.as_str().into());
    }
    let url = url_of(&server.url, path);
    let failed = |error: ureq::Error| {
        let hint = "is refrain serve running? --url or REFRAIN_URL say where";
        Failure::new(format!("no answer from {}: {error}; {hint}", server.url))
    };
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        // A key is for nobody but the server that was named.
        .max_redirects(0)
        .proxy(None)
        .tls_config(TlsConfig::builder().root_certs(trusted(server.ca_cert.as_deref())?).build())
        .timeout_connect(Some(CONNECT_TIME_MAX))
        .timeout_global(Some(ANSWER_TIME_MAX))
        .build()
        .into();
    let mut request = agent.post(&url).header("content-type", "application/json");
    if let Some(key) = &server.api_key {
        request = request.header("authorization", format!("Bearer {key}"));
    }
    let mut answer = request.send(Value::Object(body).to_string()).map_err(failed)?;
    let status = answer.status();
    let text = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_string();
    let text = text.map_err(failed)?;
    let value: Value = serde_json::from_str(&text).unwrap_or_default();
    match value {
        Value::Object(answer) if status.is_success() => Ok(answer),
        value => Err(refused(server, status.as_u16(), &value)),
    }
}

/// Who may vouch for a server: those of a file, or whom browsers trust.
fn trusted(file: Option<&Path>) -> Result<RootCerts, Failure> {
    let Some(path) = file else { return Ok(RootCerts::WebPki) };
    let failed = |problem: String| Failure::new(format!("--ca-cert {}: {problem}", path.display()));
    let mut bytes = Vec::new();
    let read = File::open(path)
        .and_then(|file| file.take(CERTIFICATES_BYTES_MAX + 1).read_to_end(&mut bytes));
    read.map_err(|error| failed(error.to_string()))?;
    if bytes.len() as u64 > CERTIFICATES_BYTES_MAX {
        return Err(failed(format!("it has more than {CERTIFICATES_BYTES_MAX} bytes")));
    }
    let mut certificates: Vec<Certificate<'static>> = Vec::new();
    for item in parse_pem(&bytes) {
        match item {
            Ok(PemItem::Certificate(certificate)) => certificates.push(certificate),
            Ok(_) => {}
            Err(_) => return Err(failed("it is not PEM as it should be".to_owned())),
        }
    }
    if certificates.is_empty() {
        return Err(failed("it has no certificate in PEM form".to_owned()));
    }
    Ok(RootCerts::Specific(Arc::new(certificates)))
}

/// The address of a path of the server; one that is named without a scheme speaks HTTP.
fn url_of(server: &str, path: &str) -> String {
    let scheme = if server.contains("://") { "" } else { "http://" };
    format!("{scheme}{}{path}", server.trim_end_matches('/'))
}

/// What the server said, or that what answered is no Refrain.
fn refused(server: &ServerArguments, status: u16, answer: &Value) -> Failure {
    match answer["error"]["message"].as_str() {
        Some(message) => Failure::new(message),
        None => Failure::new(format!("{} answered {status}, not as Refrain does", server.url)),
    }
}

#[cfg(test)]
mod tests {
    use super::url_of;

    #[test]
    fn a_server_is_named_with_or_without_a_scheme() {
        for (server, url) in [
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080/x"),
            ("https://cache.example/", "https://cache.example/x"),
            ("127.0.0.1:8080", "http://127.0.0.1:8080/x"),
            ("[::1]:8080/", "http://[::1]:8080/x"),
        ] {
            assert_eq!(url_of(server, "/x"), url);
        }
    }
}
