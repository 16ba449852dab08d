//! An id for each request, so that client and operator can speak of the same one.

use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::state::new_id;

/// The headers that OpenAI's and Anthropic's clients read it from.
pub(crate) const HEADERS: [HeaderName; 2] =
    [HeaderName::from_static("x-request-id"), HeaderName::from_static("request-id")];

/// Answers with the request's id in the headers.
pub(crate) async fn name(request: Request, next: Next) -> Response {
    let id = new_id("req_").map(|id| HeaderValue::from_str(&id));
    let mut response = next.run(request).await;
    match id {
        Ok(Ok(id)) => HEADERS.into_iter().for_each(|name| {
            response.headers_mut().insert(name, id.clone());
        }),
        Ok(Err(_)) => {}
        Err(error) => return error.into_response(),
    }
    response
}
