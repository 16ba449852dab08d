//! `refrain cache ls|show|pin|unpin|evict|clear|stats`: the prompt cache of a running server.

use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use anstyle::Style;
use serde_json::{Map, Value, json};

use crate::bytes;
use crate::failure::Failure;
use crate::quoted::{on_one_line, visible};
use crate::screen::Screen;
use crate::server_arguments::{CacheOrder, ServerArguments};
use crate::server_client;
use crate::words::{counted, grouped};

/// Columns of a prefix's id, of a number, and of what stands before a figure.
const ID: usize = 14;
const NUMBER: usize = 10;
const LABEL: usize = 16;
/// Columns before what is said of a listed prefix below its figures.
const INDENT: usize = 2;

pub(crate) fn run(order: &CacheOrder) -> Result<(), Failure> {
    let no_fields = Map::new;
    let (name, server, fields) = match order {
        CacheOrder::Ls(ls) => {
            let limit = ls.limit.map(|limit| ("limit".to_owned(), Value::from(limit)));
            ("ls", &ls.server, limit.into_iter().collect())
        }
        CacheOrder::Show(one) => ("show", &one.server, fields([("id", &one.id)])),
        CacheOrder::Pin(pin) => {
            ("pin", &pin.server, fields([("id", &pin.id), ("name", &pin.name)]))
        }
        CacheOrder::Unpin(pin) => ("unpin", &pin.server, fields([("name", &pin.name)])),
        CacheOrder::Evict(one) => ("evict", &one.server, fields([("id", &one.id)])),
        CacheOrder::Clear(server) => ("clear", server, no_fields()),
        CacheOrder::Stats(server) => ("stats", server, no_fields()),
    };
    let answer = ask(server, name, fields)?;
    if server.json {
        let mut out = anstream::stdout();
        let mut document = Map::new();
        document.insert("schema".to_owned(), format!("refrain.cache_{name}/1").into());
        document.extend(answer);
        return Ok(writeln!(out, "{}", Value::Object(document))?);
    }
    let answer = Value::Object(answer);
    match order {
        CacheOrder::Ls(_) => write_list(&answer),
        CacheOrder::Show(_) => write_one(&answer),
        CacheOrder::Pin(pin) => {
            let all = grouped(number(&answer["prefix_tokens"]));
            say(&format!("{} of the {all} of {} are kept as {}", tokens(&answer), pin.id, pin.name))
        }
        CacheOrder::Unpin(pin) => say(&format!("{} is no pin any more", pin.name)),
        CacheOrder::Evict(_) | CacheOrder::Clear(_) => {
            let pages = |tier: &str| counted(number(&answer["pages"][tier]) as usize, "page");
            say(&format!("gave up {} in memory and {} on disk", pages("ram"), pages("disk")))
        }
        CacheOrder::Stats(_) => write_stats(&answer),
    }
}

fn ask(
    server: &ServerArguments,
    order: &str,
    fields: Map<String, Value>,
) -> Result<Map<String, Value>, Failure> {
    server_client::post(server, &format!("/refrain/cache/{order}"), fields)
}

fn fields<const N: usize>(fields: [(&str, &String); N]) -> Map<String, Value> {
    fields.into_iter().map(|(name, value)| (name.to_owned(), json!(value))).collect()
}

fn say(text: &str) -> Result<(), Failure> {
    Ok(writeln!(anstream::stdout(), "{}", visible(text))?)
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn tokens(prefix: &Value) -> String {
    counted(number(&prefix["tokens"]) as usize, "token")
}

fn write_list(answer: &Value) -> Result<(), Failure> {
    let (screen, mut out) = (Screen::detect(), anstream::stdout());
    let (dim, bold) = (Style::new().dimmed(), Style::new().bold());
    let prefixes = answer["prefixes"].as_array().map_or(&[][..], Vec::as_slice);
    if prefixes.is_empty() {
        return say("the server holds no prefix of yours");
    }
    let columns = |[tokens, ram, disk, size]: [&str; 4], used: &str| {
        format!("{tokens:>NUMBER$}{ram:>NUMBER$}{disk:>NUMBER$}{size:>NUMBER$}  {used}")
    };
    let head = columns(["tokens", "in RAM", "on disk", "size"], "last used");
    writeln!(out, "{dim}{:<ID$}{head}{dim:#}", "prefix")?;
    for prefix in prefixes {
        let [in_ram, on_disk] = ["ram", "disk"].map(|tier| grouped(number(&prefix["tiers"][tier])));
        let bytes = &prefix["bytes"];
        let size = bytes::show(number(&bytes["ram"]) + number(&bytes["disk"]));
        let all = grouped(number(&prefix["tokens"]));
        let row = columns([&all, &in_ram, &on_disk, &size], &ago(&prefix["last_used"]));
        let id = prefix["id"].as_str().unwrap_or_default();
        writeln!(out, "{bold}{:<ID$}{bold:#}{row}", visible(id))?;
        let text = on_one_line(prefix["text"].as_str().unwrap_or_default());
        let text = screen.fit(&text, screen.width - INDENT);
        writeln!(out, "{:INDENT$}{text}", "")?;
        if let Some(kept) = kept(prefix) {
            writeln!(out, "{:INDENT$}{dim}{}{dim:#}", "", screen.text(&kept))?;
        }
    }
    Ok(())
}

/// How long a prefix stays, where that is said.
fn kept(prefix: &Value) -> Option<String> {
    let pins = prefix["pins"].as_array().map_or(&[][..], Vec::as_slice);
    let names = pins.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", ");
    let [ram, disk] = ["ram", "disk"].map(|tier| grouped(number(&prefix["pinned"][tier])));
    let pinned = (!names.is_empty())
        .then(|| format!("pinned as {names}: {ram} tokens, of which {disk} are on disk too"));
    let end = prefix["expires_at"].as_u64();
    let expires = end.map(|at| format!("expires in {}", duration(at.saturating_sub(now_ms()))));
    let said = pinned.into_iter().chain(expires).collect::<Vec<_>>();
    (!said.is_empty()).then(|| said.join("; "))
}

fn write_one(prefix: &Value) -> Result<(), Failure> {
    let (screen, mut out) = (Screen::detect(), anstream::stdout());
    let dim = Style::new().dimmed();
    let mut row = |label: &str, text: String| {
        writeln!(out, "{dim}{label:<LABEL$}{dim:#}{}", screen.text(&text))
    };
    row("prefix", prefix["id"].as_str().unwrap_or_default().to_owned())?;
    row("tokens", grouped(number(&prefix["tokens"])))?;
    for (tier, label) in [("ram", "in RAM"), ("disk", "on disk")] {
        let held = number(&prefix["tiers"][tier]);
        row(label, format!("{}, {}", grouped(held), bytes::show(number(&prefix["bytes"][tier]))))?;
    }
    row("last used", ago(&prefix["last_used"]))?;
    if let Some(request) = prefix["request"].as_str() {
        row("last request", request.to_owned())?;
    }
    if let Some(kept) = kept(prefix) {
        row("stays", kept)?;
    }
    let ids: Vec<_> = prefix["token_ids"].as_array().into_iter().flatten().collect();
    let ids = ids.iter().map(|id| id.to_string()).collect::<Vec<_>>().join(" ");
    row("token ids", ids)?;
    writeln!(out)?;
    Ok(writeln!(out, "{}", screen.text(prefix["text"].as_str().unwrap_or_default()))?)
}

fn write_stats(stats: &Value) -> Result<(), Failure> {
    let mut out = anstream::stdout();
    let dim = Style::new().dimmed();
    let mut row = |label: &str, text: String| writeln!(out, "{dim}{label:<LABEL$}{dim:#}{text}");
    let figure = |part: &str, name: &str| number(&stats[part][name]);
    let page_bytes = figure("kv", "page_bytes");
    let (held, size) = (grouped(figure("ram", "tokens")), bytes::show(figure("ram", "bytes")));
    row("in RAM", format!("{held} tokens, {size}"))?;
    let budget = bytes::show(figure("kv", "pages") * page_bytes);
    let free = bytes::show(figure("kv", "pages_free") * page_bytes);
    row("memory for K/V", format!("{budget}, of which {free} hold nothing"))?;
    if stats["disk"].is_null() {
        row("on disk", "none: this server keeps nothing there".to_owned())?;
    } else {
        let tokens = grouped(figure("disk", "pages") * figure("kv", "page_tokens"));
        row("on disk", format!("{tokens} tokens of this model"))?;
        let directory = bytes::show(figure("disk", "directory_bytes"));
        row("directory", format!("{directory}, of all models"))?;
        let [written, read, damaged] =
            ["written_pages", "read_pages", "damaged_pages"].map(|name| figure("disk", name));
        let pages = format!("{} pages written, {} read", grouped(written), grouped(read));
        row("since the start", format!("{pages}, {} damaged", grouped(damaged)))?;
    }
    let [prompt, reused, restored] =
        ["prompt", "reused", "restored"].map(|name| figure("tokens", name));
    let share = if prompt == 0 { 0.0 } else { 100.0 * reused as f64 / prompt as f64 };
    row("prompt tokens", grouped(prompt))?;
    row("reused", format!("{} ({share:.1} %)", grouped(reused)))?;
    row("from disk", format!("{} of these", grouped(restored)))?;
    row("remembered", format!("{} pages that are gone", grouped(figure("ram", "ghosts"))))?;
    Ok(())
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64)
}

fn ago(at: &Value) -> String {
    match at.as_u64() {
        Some(at) => format!("{} ago", duration(now_ms().saturating_sub(at))),
        None => "before the server's start, or by another".to_owned(),
    }
}

/// A duration in the unit that fits.
fn duration(ms: u64) -> String {
    match ms / 1000 {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7_200 => format!("{} min", seconds / 60),
        seconds @ 7_200..172_800 => format!("{} h", seconds / 3_600),
        seconds => format!("{} d", seconds / 86_400),
    }
}
