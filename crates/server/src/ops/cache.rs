//! `POST /refrain/cache/…`: what an operator sees of the prompt cache, and keeps in it or takes out
//! of it. Always of the caller's own namespace.

use axum::Extension;
use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, header};
use cache::{Entry, Namespace, PAGE_TOKENS};
use engine::{GivenUp, OrderError, PinError};
use serde_json::{Value, json};

use crate::body;
use crate::callers::Caller;
use crate::error::ApiError;
use crate::fields::Fields;
use crate::outcome::Account;
use crate::state::App;

/// Prefixes that are listed where nothing is said, and at most. Only these have ids.
const LISTED: usize = 20;
const LISTED_MAX: usize = 1_000;
/// Characters of a prefix's text that a list shows.
const TEXT_CHARACTERS_MAX: usize = 80;
/// Tokens that are decoded for them: a token of one byte is rare, and a space is a character.
const TEXT_TOKENS_MAX: usize = 4 * TEXT_CHARACTERS_MAX;
const PIN_NAME_BYTES_MAX: usize = 64;

/// Does what the last part of the path says.
pub(crate) async fn operate(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Path(order): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Value>, ApiError> {
    let mut fields = Fields::new(body::json_object(body).await?);
    // A browser says where a page that sends something came from, and pages have no business here.
    if headers.contains_key(header::ORIGIN) {
        return Err(ApiError::bad_request("", "web pages may not operate the prompt cache"));
    }
    let namespace = app.namespace(&caller, fields.string("cache_salt")?.as_deref());
    let fields = &mut fields;
    // What is misspelt must not clear more than was meant.
    fields.refuse_others(match order.as_str() {
        "ls" => &["limit"],
        "show" | "evict" => &["id"],
        "pin" => &["id", "name"],
        "unpin" => &["name"],
        _ => &[],
    })?;
    let answer = match order.as_str() {
        "ls" => list(&app, namespace, fields).await,
        "show" => show(&app, namespace, fields).await,
        "pin" => pin(&app, caller, namespace, fields).await,
        "unpin" => unpin(&app, namespace, fields).await,
        "evict" => evict(&app, namespace, fields).await,
        "clear" => Ok(given_up(app.engine.clear_prefixes(namespace).await?)),
        "stats" => Ok(stats(&app)),
        _ => Err(ApiError::not_found("there is nothing at this path", None)),
    };
    answer.map(Json)
}

async fn list(app: &App, namespace: Namespace, fields: &mut Fields) -> Result<Value, ApiError> {
    let limit = fields.count("limit", 1, LISTED_MAX)?.unwrap_or(LISTED);
    let entries = app.engine.cached_prefixes(namespace, limit).await?;
    let shown = app.prepare(move |app| {
        let one = |entry: &Entry| {
            let begin = &entry.tokens[..entry.tokens.len().min(TEXT_TOKENS_MAX)];
            let text = app.package.tokenizer.decode(begin, true);
            let mut shown = entry_value(app, entry);
            shown["text"] = text.chars().take(TEXT_CHARACTERS_MAX).collect::<String>().into();
            shown
        };
        Ok(entries.iter().map(one).collect::<Vec<_>>())
    });
    Ok(json!({"prefixes": shown.await?}))
}

async fn show(app: &App, namespace: Namespace, fields: &mut Fields) -> Result<Value, ApiError> {
    let entry = find(app, namespace, fields).await?;
    let shown = app.prepare(move |app| {
        let mut shown = entry_value(app, &entry);
        shown["text"] = app.package.tokenizer.decode(&entry.tokens, true).into();
        shown["token_ids"] = json!(entry.tokens);
        Ok(shown)
    });
    shown.await
}

/// A prefix without its text. Times are in milliseconds since 1970.
fn entry_value(app: &App, entry: &Entry) -> Value {
    let tokens = |pages: usize| entry.tokens.len().min(pages * PAGE_TOKENS);
    let bytes = |pages: usize| pages * app.engine.info().page_bytes;
    json!({
        "id": entry.id(),
        "tokens": entry.tokens.len(),
        "tiers": {"ram": tokens(entry.ram_pages), "disk": tokens(entry.disk_pages)},
        "bytes": {"ram": bytes(entry.ram_pages), "disk": bytes(entry.disk_pages)},
        "last_used": entry.last_used,
        "request": entry.request,
        "pins": entry.pins,
        "pinned": {"ram": tokens(entry.pinned_pages), "disk": tokens(entry.pinned_disk_pages)},
        "expires_at": entry.expires_at,
    })
}

async fn find(app: &App, namespace: Namespace, fields: &mut Fields) -> Result<Entry, ApiError> {
    let id = required(fields, "id")?;
    let entries = app.engine.cached_prefixes(namespace, LISTED_MAX).await?;
    let wanted = id.clone();
    let found = app.prepare(move |_| Ok(entries.into_iter().find(|entry| entry.id() == wanted)));
    found.await?.ok_or_else(|| {
        let id = doctor::shown(&id);
        let message = format!("the prompt cache has no prefix {id} of yours; see refrain cache ls");
        ApiError::not_found(message, Some("prefix_not_found"))
    })
}

/// Counts as a request: where a part of the prefix is not in memory and cannot be read, it is
/// computed.
async fn pin(
    app: &App,
    caller: Caller,
    namespace: Namespace,
    fields: &mut Fields,
) -> Result<Value, ApiError> {
    let name = required(fields, "name")?;
    if name.chars().any(char::is_control) {
        return Err(ApiError::bad_request("name", "'name' must have no control characters"));
    }
    let entry = find(app, namespace, fields).await?;
    let all = entry.tokens.len();
    let mut account = Account::open(app, caller, format!("pin-{name}"), 1)?;
    let pinned = app.engine.pin_prefix(namespace, name.clone(), entry.tokens).await;
    let pinned = pinned.map_err(|error| match error {
        PinError::Refused(refused) => ApiError::bad_request("id", refused.to_string()),
        PinError::Order(error) => error.into(),
        PinError::Submit(error) => ApiError::from_submit(error, "id"),
        PinError::Engine(error) => error.into(),
    })?;
    account.spend(pinned.computed_tokens);
    Ok(json!({"name": name, "tokens": pinned.tokens, "prefix_tokens": all}))
}

async fn unpin(app: &App, namespace: Namespace, fields: &mut Fields) -> Result<Value, ApiError> {
    let name = required(fields, "name")?;
    if !app.engine.unpin_prefix(namespace, name.clone()).await? {
        let message = format!("there is no pin {} of yours", doctor::shown(&name));
        return Err(ApiError::not_found(message, Some("pin_not_found")));
    }
    Ok(json!({"name": name}))
}

async fn evict(app: &App, namespace: Namespace, fields: &mut Fields) -> Result<Value, ApiError> {
    let entry = find(app, namespace, fields).await?;
    Ok(given_up(app.engine.evict_prefix(namespace, entry.tokens).await?))
}

fn given_up(given_up: GivenUp) -> Value {
    json!({"pages": {"ram": given_up.ram_pages, "disk": given_up.disk_pages}})
}

/// A short text that must be there.
fn required(fields: &mut Fields, name: &str) -> Result<String, ApiError> {
    match fields.string(name)? {
        Some(text) if (1..=PIN_NAME_BYTES_MAX).contains(&text.len()) => Ok(text),
        Some(_) => {
            let message = format!("'{name}' must have between 1 and {PIN_NAME_BYTES_MAX} bytes");
            Err(ApiError::bad_request(name, message))
        }
        None => Err(ApiError::bad_request(name, format!("'{name}' is missing"))),
    }
}

/// Figures of the whole server: how full it is concerns everybody.
fn stats(app: &App) -> Value {
    let (stats, page_bytes) = (app.engine.stats(), app.engine.info().page_bytes);
    let disk = stats.disk.map(|disk| {
        json!({
            "pages": disk.pages,
            "directory_bytes": disk.directory_bytes,
            "queued_bytes": disk.queued_bytes,
            "written_pages": disk.written_pages,
            "read_pages": disk.read_pages,
            "dropped_pages": disk.dropped_pages,
            "damaged_pages": disk.damaged_pages,
        })
    });
    json!({
        "ram": {
            "pages": stats.pages_cached,
            "tokens": stats.tokens_cached,
            "bytes": stats.pages_cached * page_bytes,
            "ghosts": stats.ghosts,
        },
        "kv": {
            "pages": stats.pages,
            "pages_in_use": stats.pages_in_use,
            "pages_free": stats.pages_free,
            "page_bytes": page_bytes,
            "page_tokens": PAGE_TOKENS,
        },
        "disk": disk,
        "tokens": {
            "prompt": stats.prompt_tokens,
            "reused": stats.reused_tokens,
            "restored": stats.restored_tokens,
        },
    })
}

impl From<OrderError> for ApiError {
    fn from(error: OrderError) -> Self {
        ApiError::unavailable(error.to_string())
    }
}
