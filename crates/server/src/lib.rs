//! The wire: OpenAI's and Anthropic's APIs and the operator's endpoints over an [`Engine`].
//!
//! This crate parses and checks requests, renders chat templates, submits to the engine and turns
//! its events into JSON and server-sent events. What a token costs or why a prefix was not reused
//! is decided elsewhere.

mod access_log;
mod anthropic;
mod body;
mod callers;
mod calling;
mod connections;
mod constraint;
mod diagnostics;
mod error;
mod fields;
mod hosts;
mod identify;
mod job;
mod lifetime;
mod log;
mod models;
mod openai;
mod ops;
mod origins;
mod outcome;
mod price;
mod question;
mod reading;
mod reception;
mod request_id;
mod second_look;
mod state;
mod stored_responses;
mod tally;
mod tls;

use std::future::Future;
use std::sync::Arc;

use axum::Router;
use axum::http::header;
use axum::middleware;
use axum::routing::{get, post};
use engine::Engine;
use package::Package;
use tokio::net::TcpListener;

pub use callers::{Callers, KeyFileError, KeyName, NewKey};
use error::ApiError;
pub use lifetime::lifetime;
pub use log::{AccessLog, Entry, Log};
#[doc(hidden)]
pub use openai::parse_request;
use openai::responses::stored;
pub use origins::Origin;
pub use price::{Price, Prices};
pub use reception::Reception;
use state::App;
pub use state::ServerOptions;
pub use tls::{Tls, TlsError};

/// Serves `engine` on `listener` until `shutdown` resolves; then takes no new connection and
/// returns when the requests that run have been answered.
pub async fn serve(
    listener: TcpListener,
    engine: Engine,
    package: Arc<Package>,
    mut options: ServerOptions,
    shutdown: impl Future<Output = ()>,
) {
    let tls = options.tls.take();
    let app = App::new(engine.clone(), package, options);
    connections::serve(listener, router(app), tls, &engine, shutdown).await;
}

fn router(app: App) -> Router {
    let open = Router::new()
        .route("/health", get(ops::health::show))
        .route("/ready", get(ops::health::ready))
        .method_not_allowed_fallback(async || ApiError::method_not_allowed());
    // What is added before the layer needs a key, where keys are asked for: also what is not there.
    let closed = Router::new()
        .route("/v1/chat/completions", post(openai::chat::create))
        .route("/v1/chat/completions/render", post(openai::chat::render))
        .route("/v1/completions", post(openai::completions::create))
        .route("/v1/completions/render", post(openai::completions::render))
        .route("/v1/responses", post(openai::responses::create::create))
        .route("/v1/responses/input_tokens", post(openai::responses::create::count))
        .route("/v1/responses/{id}", get(stored::show).delete(stored::delete))
        .route("/v1/responses/{id}/input_items", get(stored::input_items))
        .route("/v1/responses/{id}/cancel", post(stored::cancel))
        .route("/v1/messages", post(anthropic::messages::create))
        .route("/v1/messages/count_tokens", post(anthropic::count_tokens::count))
        .route("/v1/models", get(models::list))
        // Model names may hold slashes.
        .route("/v1/models/{*id}", get(models::show))
        .route("/tokenize", post(ops::tokenize::tokenize))
        .route("/detokenize", post(ops::tokenize::detokenize))
        .route("/refrain/cache/{order}", post(ops::cache::operate))
        .route("/metrics", get(ops::metrics::show))
        .method_not_allowed_fallback(async || ApiError::method_not_allowed())
        .fallback(async || ApiError::not_found("there is nothing at this path", None))
        .layer(middleware::from_fn_with_state(app.clone(), identify::identify));
    let mut all = closed.merge(open);
    // Browsers ask without a key, and for names of this server only.
    if !app.options.origins.is_empty() {
        let exposed = request_id::HEADERS.into_iter().chain([header::RETRY_AFTER]).collect();
        all = all.layer(origins::layer(&app.options.origins, exposed));
    }
    all.layer(middleware::from_fn_with_state(app.clone(), hosts::check))
        .layer(middleware::from_fn(request_id::name))
        .layer(middleware::from_fn_with_state(app.clone(), access_log::write))
        .with_state(app)
}
