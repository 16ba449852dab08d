//! The wire: OpenAI's API and the operator's endpoints over an [`Engine`].
//!
//! This crate parses and checks requests, renders chat templates, submits to the engine and turns
//! its events into JSON and server-sent events. What a token costs or why a prefix was not reused
//! is decided elsewhere.

mod body;
mod connections;
mod error;
mod fields;
mod openai;
mod ops;
mod reception;
mod state;

use std::future::Future;
use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};
use engine::Engine;
use package::Package;
use tokio::net::TcpListener;

use error::ApiError;
#[doc(hidden)]
pub use openai::parse_request;
pub use reception::Reception;
use state::App;
pub use state::ServerOptions;

/// Serves `engine` on `listener` until `shutdown` resolves; then takes no new connection and
/// returns when the requests that run have been answered.
pub async fn serve(
    listener: TcpListener,
    engine: Engine,
    package: Arc<Package>,
    options: ServerOptions,
    shutdown: impl Future<Output = ()>,
) {
    let app = App::new(engine.clone(), package, options);
    connections::serve(listener, router(app), &engine, shutdown).await;
}

fn router(app: App) -> Router {
    Router::new()
        .route("/v1/chat/completions", post(openai::chat::create))
        .route("/v1/completions", post(openai::completions::create))
        .route("/v1/models", get(openai::models::list))
        // Model names may hold slashes.
        .route("/v1/models/{*id}", get(openai::models::show))
        .route("/tokenize", post(ops::tokenize::tokenize))
        .route("/detokenize", post(ops::tokenize::detokenize))
        .route("/health", get(ops::health::show))
        .route("/metrics", get(ops::metrics::show))
        .method_not_allowed_fallback(async || ApiError::method_not_allowed())
        .fallback(async || ApiError::not_found("there is nothing at this path", None))
        .with_state(app)
}
