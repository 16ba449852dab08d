//! Errors, and their form for OpenAI's clients.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use doctor::PromptError;
use engine::{EngineError, SubmitError};
use serde_json::{Value, json};

use crate::callers::OverLimit;

/// When to come again for whom the queue took too long, in seconds: it is not expected to be short
/// soon.
const RETRY_AFTER_WAIT_S: u64 = 60;

/// An error that becomes an HTTP response: OpenAI's `{"error": {…}}` with a fitting status.
#[derive(Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    kind: &'static str,
    code: Option<&'static str>,
    param: Option<String>,
    message: String,
    retry_after_s: Option<u64>,
}

impl ApiError {
    /// 400: the request, or the field `param` of it, cannot be served as it is.
    pub(crate) fn bad_request(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            kind: "invalid_request_error",
            code: None,
            param: Some(param.into()).filter(|param| !param.is_empty()),
            message: message.into(),
            retry_after_s: None,
        }
    }

    /// 400 for a field that would change the answer and does not work here.
    pub(crate) fn unsupported(field: &str, what: &str) -> Self {
        let message = format!("'{field}' is not supported by this server: {what}");
        Self { code: Some("unsupported_parameter"), ..Self::bad_request(field, message) }
    }

    /// 400: the response that a request goes on from is not there, for this caller.
    pub(crate) fn previous_not_found(id: &str) -> Self {
        let id = doctor::shown(&id);
        let message = format!("'previous_response_id': there is no stored response {id:?}");
        let code = Some("previous_response_not_found");
        Self { code, ..Self::bad_request("previous_response_id", message) }
    }

    /// The same error, where what is called `field` in it came in another one, or in a part of it.
    #[must_use]
    pub(crate) fn in_field(mut self, field: &str, real: &str) -> Self {
        let rest = self.param.as_deref().and_then(|param| param.strip_prefix(field));
        if let Some(rest) = rest {
            self.param = Some(format!("{real}{rest}"));
            self.message = self.message.replace(&format!("'{field}"), &format!("'{real}"));
        }
        self
    }

    /// 401: no API key, or none that is known.
    pub(crate) fn unauthorized(message: &str) -> Self {
        Self {
            status: StatusCode::UNAUTHORIZED,
            code: Some("invalid_api_key"),
            ..Self::bad_request("", message)
        }
    }

    /// 403: not for this request, whoever sends it.
    pub(crate) fn forbidden(message: String) -> Self {
        Self { status: StatusCode::FORBIDDEN, ..Self::bad_request("", message) }
    }

    /// 404: no such thing.
    pub(crate) fn not_found(message: impl Into<String>, code: Option<&'static str>) -> Self {
        Self { status: StatusCode::NOT_FOUND, code, ..Self::bad_request("", message) }
    }

    /// 405: the path exists, the method does not.
    pub(crate) fn method_not_allowed() -> Self {
        let message = "this path does not answer to that method";
        Self { status: StatusCode::METHOD_NOT_ALLOWED, ..Self::bad_request("", message) }
    }

    /// 413: the body is larger than `limit_bytes`.
    pub(crate) fn too_large(limit_bytes: usize) -> Self {
        let message = format!("the request body is larger than {limit_bytes} bytes");
        Self { status: StatusCode::PAYLOAD_TOO_LARGE, ..Self::bad_request("body", message) }
    }

    /// 408: the body did not arrive in time.
    pub(crate) fn body_timeout() -> Self {
        let message = "the request body did not arrive in time";
        Self { status: StatusCode::REQUEST_TIMEOUT, ..Self::bad_request("body", message) }
    }

    /// 500: a fault of the server's own.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self {
            status: StatusCode::INTERNAL_SERVER_ERROR,
            kind: "server_error",
            ..Self::bad_request("", message)
        }
    }

    /// 503: not now.
    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self { status: StatusCode::SERVICE_UNAVAILABLE, ..Self::internal(message) }
    }

    /// 429: the limits of a key's name.
    pub(crate) fn over_limit(over: OverLimit) -> Self {
        let OverLimit { what, limit, retry_after_s } = over;
        Self {
            status: StatusCode::TOO_MANY_REQUESTS,
            kind: "rate_limit_error",
            code: Some("rate_limit_exceeded"),
            retry_after_s: Some(retry_after_s),
            ..Self::bad_request("", format!("this API key may have {limit} {what}"))
        }
    }

    /// The engine's refusal of a request; `prompt_field` is the field that the prompt came in.
    pub(crate) fn from_submit(error: SubmitError, prompt_field: &str) -> Self {
        let message = error.to_string();
        match error {
            SubmitError::QueueFull { retry_after_s } => Self {
                status: StatusCode::TOO_MANY_REQUESTS,
                kind: "rate_limit_error",
                code: Some("queue_full"),
                retry_after_s: Some(retry_after_s),
                ..Self::bad_request("", message)
            },
            SubmitError::PromptTooLong(error) => PromptError::too_long(prompt_field, error).into(),
            SubmitError::PromptOverLimit { .. } => Self {
                code: Some("context_length_exceeded"),
                ..Self::bad_request(prompt_field, message)
            },
            SubmitError::EmptyPrompt => Self::bad_request(prompt_field, message),
            SubmitError::BadParameter { field, .. } => Self::bad_request(field, message),
            SubmitError::ShuttingDown => Self::unavailable(message),
        }
    }

    /// 500: the engine's events ended before the answer did.
    pub(crate) fn broken_off() -> Self {
        Self::internal("the engine stopped before the answer was complete")
    }

    /// The status that says what kind of error it is.
    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    /// What is wrong, in words.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// The JSON body, also sent as an event when a stream fails midway.
    pub(crate) fn body(&self) -> Value {
        json!({"error": {
            "message": self.message, "type": self.kind, "param": self.param, "code": self.code,
        }})
    }
}

impl From<PromptError> for ApiError {
    fn from(error: PromptError) -> Self {
        let code = error.too_long.then_some("context_length_exceeded");
        Self { code, ..Self::bad_request(error.field, error.message) }
    }
}

impl From<EngineError> for ApiError {
    fn from(error: EngineError) -> Self {
        let message = error.to_string();
        match error {
            EngineError::WaitedTooLong { .. } => Self {
                code: Some("queue_timeout"),
                retry_after_s: Some(RETRY_AFTER_WAIT_S),
                ..Self::unavailable(message)
            },
            EngineError::Unread => Self { code: Some("unread"), ..Self::bad_request("", message) },
            EngineError::Constraint(_) => Self::bad_request("", message),
            EngineError::ShuttingDown => Self::unavailable(message),
            EngineError::Step(_) | EngineError::NotNumbers => Self::internal(message),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.body())).into_response();
        if let Some(seconds) = self.retry_after_s {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            let scheme = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
        }
        response
    }
}
