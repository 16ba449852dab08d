//! Reading a request's body within limits of size and time.

use std::time::Duration;

use axum::body::Body;
use http_body_util::BodyExt;
use serde_json::{Map, Value};
use tokio::time::Instant;

use crate::error::ApiError;

/// A larger body is refused.
pub(crate) const BODY_BYTES_MAX: usize = 16 << 20;
/// A body that takes longer to arrive is refused.
const BODY_TIME_MAX: Duration = Duration::from_secs(60);
/// How much of a body that is too large is read and thrown away, so that a client which writes
/// all of it before it reads still sees the refusal and not a reset connection.
const DRAIN_BYTES_MAX: usize = 256 << 20;
const DRAIN_TIME_MAX: Duration = Duration::from_secs(10);

/// Reads the whole body and parses it as a JSON object.
pub(crate) async fn json_object(body: Body) -> Result<Map<String, Value>, ApiError> {
    parse(&read(body).await?)
}

/// Parses the bytes of a body as a JSON object.
pub(crate) fn parse(bytes: &[u8]) -> Result<Map<String, Value>, ApiError> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        ApiError::bad_request("body", format!("the request body is not UTF-8: {error}"))
    })?;
    match serde_json::from_str(text) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(ApiError::bad_request("body", "the request body must be a JSON object")),
        Err(error) => {
            Err(ApiError::bad_request("body", format!("the request body is not JSON: {error}")))
        }
    }
}

async fn read(mut body: Body) -> Result<Vec<u8>, ApiError> {
    let deadline = Instant::now() + BODY_TIME_MAX;
    let mut bytes = Vec::new();
    loop {
        let frame = tokio::time::timeout_at(deadline, body.frame());
        let Some(frame) = frame.await.map_err(|_| ApiError::body_timeout())? else {
            return Ok(bytes);
        };
        let frame = frame.map_err(|error| {
            ApiError::bad_request("body", format!("the request body broke off: {error}"))
        })?;
        if let Some(data) = frame.data_ref() {
            if bytes.len() + data.len() > BODY_BYTES_MAX {
                drain(body).await;
                return Err(ApiError::too_large(BODY_BYTES_MAX));
            }
            bytes.extend_from_slice(data);
        }
    }
}

/// Reads a body of a request that is refused, and throws it away.
pub(crate) async fn drain(mut body: Body) {
    let deadline = Instant::now() + DRAIN_TIME_MAX;
    let mut drained = 0;
    while drained < DRAIN_BYTES_MAX {
        match tokio::time::timeout_at(deadline, body.frame()).await {
            Ok(Some(Ok(frame))) => drained += frame.data_ref().map_or(0, |data| data.len()),
            _ => return,
        }
    }
}
