//! Errors as Anthropic's clients parse them: <https://docs.anthropic.com/en/api/errors>.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::error::ApiError;

/// The error as a response: the same status as OpenAI's clients get, another body.
pub(crate) fn respond(error: ApiError) -> Response {
    let body = body(&error);
    let (parts, _) = error.into_response().into_parts();
    let mut response = Json(body).into_response();
    *response.status_mut() = parts.status;
    response.headers_mut().extend(parts.headers.into_iter().filter(|(name, _)| {
        name.as_ref().is_some_and(|name| !name.as_str().starts_with("content-"))
    }));
    response
}

/// The body, which is also an event of a stream that fails midway.
pub(super) fn body(error: &ApiError) -> Value {
    json!({"type": "error", "error": {"type": kind(error.status()), "message": error.message()}})
}

fn kind(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED => "authentication_error",
        StatusCode::FORBIDDEN => "permission_error",
        StatusCode::NOT_FOUND => "not_found_error",
        StatusCode::PAYLOAD_TOO_LARGE => "request_too_large",
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
        StatusCode::REQUEST_TIMEOUT | StatusCode::GATEWAY_TIMEOUT => "timeout_error",
        StatusCode::SERVICE_UNAVAILABLE => "overloaded_error",
        status if status.is_server_error() => "api_error",
        _ => "invalid_request_error",
    }
}
