//! Which names of this server a request may use.
//!
//! A page from elsewhere can have its own name resolve to an address of this machine, and then
//! talks to a server here as if it were its own (DNS rebinding). Its requests carry that name in
//! `Host`, so that a server for this machine alone refuses every name that is not this machine's.

use std::net::IpAddr;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::body;
use crate::error::ApiError;
use crate::state::App;

/// Lets a request through that names this server by a name it may use; else answers 403.
pub(crate) async fn check(State(app): State<App>, request: Request, next: Next) -> Response {
    let Some(names) = &app.options.host_names else { return next.run(request).await };
    let host = host(request.uri(), request.headers()).map(str::to_ascii_lowercase);
    let is_known = host.as_deref().is_some_and(|host| {
        host == "localhost" || is_loopback(host) || names.iter().any(|name| name == host)
    });
    if is_known {
        return next.run(request).await;
    }
    body::drain(request.into_body()).await;
    ApiError::forbidden(match host {
        Some(host) => format!(
            "this server does not answer to the name {:?}; --host-name allows it",
            doctor::shown(&host)
        ),
        None => "the request does not say which server it is for: 'Host' is missing".to_owned(),
    })
    .into_response()
}

/// The name that a request is for, without its port.
fn host<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Option<&'a str> {
    if let Some(host) = uri.host() {
        return Some(host);
    }
    let host = headers.get(header::HOST)?.to_str().ok()?;
    if host.starts_with('[') {
        return host.split_inclusive(']').next();
    }
    host.split(':').next()
}

fn is_loopback(host: &str) -> bool {
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn of(value: &str) -> Option<String> {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_str(value).unwrap());
        host(&Uri::from_static("/v1/models"), &headers).map(str::to_owned)
    }

    #[test]
    fn the_port_is_no_part_of_the_name() {
        assert_eq!(of("localhost:8080").as_deref(), Some("localhost"));
        assert_eq!(of("127.0.0.1").as_deref(), Some("127.0.0.1"));
        assert_eq!(of("[::1]:8080").as_deref(), Some("[::1]"));
        assert_eq!(of("evil.example:80").as_deref(), Some("evil.example"));
        assert_eq!(host(&Uri::from_static("/"), &HeaderMap::new()), None);
        let whole = Uri::from_static("http://evil.example/v1/models");
        assert_eq!(host(&whole, &HeaderMap::new()), Some("evil.example"));
    }

    #[test]
    fn addresses_of_this_machine_are_its_own() {
        for own in ["127.0.0.1", "127.1.2.3", "[::1]", "::1"] {
            assert!(is_loopback(own), "{own}");
        }
        for other in ["10.0.0.1", "[::2]", "127.0.0.1.evil.example", "", "[", "localhost"] {
            assert!(!is_loopback(other), "{other}");
        }
    }
}
