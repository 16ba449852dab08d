//! Which pages of other origins may talk to this server (CORS).
//!
//! A browser keeps a page from reading what another origin answers, and from sending it JSON or a
//! key, unless that origin says that the page may. It asks before it sends (a preflight), without
//! the page's key.

use std::str::FromStr;
use std::time::Duration;

use axum::http::{HeaderName, HeaderValue, Method, Uri};
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};

/// A longer origin is none: names have 253 characters at most.
const ORIGIN_BYTES_MAX: usize = 300;
/// How long a browser need not ask again.
const ASK_AGAIN: Duration = Duration::from_secs(600);
/// Any origin.
const ANY: &str = "*";

/// The origin of pages that may talk to the server: `https://chat.example`, or `*` for any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin(HeaderValue);

impl FromStr for Origin {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WANTED: &str = "must be an origin as browsers name it, like https://chat.example or \
                              http://localhost:3000, without a path; or * for any";
        if text.len() > ORIGIN_BYTES_MAX {
            return Err(WANTED);
        }
        let text = text.to_ascii_lowercase();
        let uri: Uri = text.parse().map_err(|_| WANTED)?;
        let origin = uri.scheme_str().zip(uri.authority()).map(|(scheme, authority)| {
            let default = match scheme {
                "http" => ":80",
                "https" => ":443",
                _ => "",
            };
            let authority = authority.as_str();
            // As browsers write it: without the port that the scheme has anyway.
            let port = if default.is_empty() { None } else { authority.strip_suffix(default) };
            (format!("{scheme}://{}", port.unwrap_or(authority)), format!("{scheme}://{authority}"))
        });
        let origin = match origin {
            Some((origin, whole)) if whole == text && !text.contains(['@', '*']) => origin,
            None if text == ANY => text,
            _ => return Err(WANTED),
        };
        HeaderValue::from_str(&origin).map(Self).map_err(|_| WANTED)
    }
}

/// What answers browsers that ask for pages of these origins, and marks answers as theirs to read,
/// with the headers in `exposed`.
pub(crate) fn layer(origins: &[Origin], exposed: Vec<HeaderName>) -> CorsLayer {
    let allowed = match origins.iter().any(|origin| origin.0 == ANY) {
        true => AllowOrigin::any(),
        false => AllowOrigin::list(origins.iter().map(|origin| origin.0.clone())),
    };
    CorsLayer::new()
        .allow_origin(allowed)
        .allow_methods([Method::GET, Method::POST, Method::DELETE])
        // Those that clients send beside their key differ from version to version.
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers(exposed)
        .max_age(ASK_AGAIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_written_as_browsers_send_them() {
        for (text, origin) in [
            ("https://chat.example", "https://chat.example"),
            ("HTTP://LocalHost:3000", "http://localhost:3000"),
            ("https://chat.example:443", "https://chat.example"),
            ("http://chat.example:80", "http://chat.example"),
            ("http://chat.example:443", "http://chat.example:443"),
            ("http://[::1]:3000", "http://[::1]:3000"),
            ("app://obsidian.md", "app://obsidian.md"),
            ("*", "*"),
        ] {
            let read: Result<Origin, _> = text.parse();
            assert_eq!(read.map(|origin| origin.0), Ok(HeaderValue::from_static(origin)), "{text}");
        }
    }

    #[test]
    fn what_no_page_can_be_of_is_refused() {
        let long = format!("https://{}.example", "x".repeat(300));
        // `null` is what every page in a sandbox is of, whose ever it is.
        for text in [
            "",
            "null",
            "chat.example",
            "https://",
            "https://chat.example/",
            "https://a.example/b",
            "https://*.example",
            "https://a.example, https://b.example",
            "https://me@a.example",
            "https://a.example?b",
            "/",
            "**",
            &long,
        ] {
            assert!(text.parse::<Origin>().is_err(), "{text}");
        }
    }
}
