//! `GET /metrics`: what the engine holds and has done, in Prometheus's text format.

use std::time::Duration;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use cache::disk::DiskStats;
use engine::{EngineStats, Histogram};

use crate::state::App;
use crate::tally::{Count, Tally};

const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

pub(crate) async fn show(State(app): State<App>) -> Response {
    ([(CONTENT_TYPE, TEXT_FORMAT)], whole(&app)).into_response()
}

fn whole(app: &App) -> String {
    let stats = app.engine.stats();
    text(&stats) + &by_reason(&app.tally) + &histograms(&stats, &app.tally)
}

/// How many times of each length.
fn histograms(stats: &EngineStats, tally: &Tally) -> String {
    let ages = &stats.ages;
    let restored = tally.restored();
    let families = [
        (
            "refrain_prompt_cache_reused_page_age_seconds",
            "Ages of pages in memory that a request reused, since they were computed or read.",
            &ages.reused,
        ),
        (
            "refrain_prompt_cache_reuse_gap_seconds",
            "Times since those pages were last used.",
            &ages.reuse_gap,
        ),
        (
            "refrain_prompt_cache_evicted_page_age_seconds",
            "Ages of pages in memory that made room, since they were computed or read.",
            &ages.evicted,
        ),
        (
            "refrain_restore_seconds",
            "Times that reading from disk took, of prompts for which something was read.",
            &restored,
        ),
    ];
    families.into_iter().map(|(name, help, histogram)| lines(name, help, histogram)).collect()
}

/// A histogram. Before the engine has said anything it has no buckets, and is left out.
fn lines(name: &str, help: &str, histogram: &Histogram) -> String {
    if histogram.at_most().next().is_none() {
        return String::new();
    }
    let mut text = format!("# HELP {name} {help}\n# TYPE {name} histogram\n");
    let mut all = 0;
    for (bound, count) in histogram.at_most() {
        let bound = if bound.is_finite() { bound.to_string() } else { "+Inf".to_owned() };
        text += &format!("{name}_bucket{{le=\"{bound}\"}} {count}\n");
        all = count;
    }
    text + &format!("{name}_sum {}\n{name}_count {all}\n", histogram.sum_s())
}

/// What has no labels. What only grows is a counter, and its name ends in `_total`.
fn text(stats: &EngineStats) -> String {
    let counter = |name: &str| name.ends_with("_total");
    let metric = |(name, value, help): (&str, u64, &str)| {
        let kind = if counter(name) { "counter" } else { "gauge" };
        format!("# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n")
    };
    let disk = stats.disk.iter().flat_map(disk);
    gauges(stats).into_iter().chain(counters(stats)).chain(disk).map(metric).collect()
}

/// A name, its help, and for each further label (or none) the value.
type Family = (&'static str, &'static str, &'static [(&'static str, fn(&Count) -> f64)]);

/// What is counted by the reason of verdicts.
fn by_reason(tally: &Tally) -> String {
    let families: [Family; 5] = [
        (
            "refrain_verdicts_total",
            "Prompts answered in full, by why reuse stopped.",
            &[("", |count| count.verdicts as f64)],
        ),
        (
            "refrain_verdict_reused_tokens_total",
            "Their reused tokens, by where the K/V lay.",
            &[
                (",tier=\"ram\"", |count| count.ram_tokens as f64),
                (",tier=\"disk\"", |count| count.disk_tokens as f64),
            ],
        ),
        (
            "refrain_verdict_computed_tokens_total",
            "Their computed tokens.",
            &[("", |count| count.computed_tokens as f64)],
        ),
        (
            "refrain_verdict_lost_tokens_total",
            "Of these, tokens that are held after the place where reuse stopped, or were.",
            &[("", |count| count.lost_tokens as f64)],
        ),
        (
            "refrain_verdict_lost_seconds_total",
            "The time that computing these took, estimated.",
            &[("", |count| count.lost_ms / 1e3)],
        ),
    ];
    let (counts, mut text) = (tally.counts(), String::new());
    for (name, help, values) in families {
        text += &format!("# HELP {name} {help}\n# TYPE {name} counter\n");
        for (reason, count) in &counts {
            for (label, value) in values {
                let (code, value) = (reason.code(), value(count));
                text += &format!("{name}{{reason=\"{code}\"{label}}} {value}\n");
            }
        }
    }
    text
}

type Metric = (&'static str, u64, &'static str);

fn gauges(stats: &EngineStats) -> [Metric; 11] {
    let gauge = |name, value: usize, help| (name, value as u64, help);
    [
        gauge("refrain_requests_running", stats.running, "Requests being computed."),
        gauge("refrain_requests_waiting", stats.waiting, "Requests that wait for their turn."),
        gauge(
            "refrain_requests_waiting_for_prefix",
            stats.waiting_for_prefix,
            "Of these, requests whose prefix another one is computing.",
        ),
        gauge(
            "refrain_answers_preempted",
            stats.preempted,
            "Answers that gave up their pages and wait to go on.",
        ),
        gauge("refrain_kv_pages", stats.pages, "Pages of 16 tokens that the KV budget holds."),
        gauge("refrain_kv_pages_free", stats.pages_free, "Pages that hold nothing."),
        gauge("refrain_kv_pages_in_use", stats.pages_in_use, "Pages that answers hold."),
        gauge(
            "refrain_kv_pages_shared",
            stats.pages_shared,
            "Of the pages in use, those that more than one answer holds.",
        ),
        gauge(
            "refrain_prompt_cache_pages",
            stats.pages_cached,
            "Pages that the prompt cache holds, in use or not.",
        ),
        gauge("refrain_prompt_cache_tokens", stats.tokens_cached, "Tokens in those pages."),
        gauge(
            "refrain_prompt_cache_ghosts",
            stats.ghosts,
            "Evicted pages that are remembered to explain misses.",
        ),
    ]
}

fn counters(stats: &EngineStats) -> [Metric; 17] {
    [
        ("refrain_steps_total", stats.steps, "Steps computed."),
        ("refrain_requests_done_total", stats.requests_done, "Requests answered in full."),
        ("refrain_requests_failed_total", stats.requests_failed, "Requests that failed."),
        (
            "refrain_requests_cancelled_total",
            stats.requests_cancelled,
            "Requests whose client went away.",
        ),
        (
            "refrain_requests_unread_total",
            stats.requests_unread,
            "Requests whose client did not read the answer.",
        ),
        (
            "refrain_requests_expired_total",
            stats.requests_expired,
            "Requests whose turn did not come in time.",
        ),
        (
            "refrain_preemptions_total",
            stats.preemptions,
            "Answers, and requests being restored, that gave up their pages for others.",
        ),
        ("refrain_prompt_tokens_total", stats.prompt_tokens, "Prompt tokens of admitted requests."),
        (
            "refrain_reused_tokens_total",
            stats.reused_tokens,
            "Of these, tokens that were not computed again.",
        ),
        (
            "refrain_shared_prefix_tokens_total",
            stats.shared_prefix_tokens,
            "Of these, tokens that another request computed meanwhile.",
        ),
        (
            "refrain_restored_tokens_total",
            stats.restored_tokens,
            "Of the reused tokens, those whose K/V came from disk.",
        ),
        ("refrain_output_tokens_total", stats.output_tokens, "Tokens drawn."),
        (
            "refrain_proposed_tokens_total",
            stats.proposed_tokens,
            "Tokens that were guessed and computed before they were drawn, or not.",
        ),
        (
            "refrain_accepted_tokens_total",
            stats.accepted_tokens,
            "Of these, tokens that were drawn, and so came without a step of their own.",
        ),
        (
            "refrain_prompt_cache_evicted_pages_total",
            stats.evicted_pages,
            "Pages that the prompt cache gave up to make room.",
        ),
        (
            "refrain_prompt_cache_expired_pages_total",
            stats.expired_pages,
            "Pages in the prompt cache whose life ended.",
        ),
        (
            "refrain_kv_saturated_total",
            stats.kv_saturated,
            "K and V numbers that were too large for their type.",
        ),
    ]
}

/// Of the prompt cache on disk.
fn disk(stats: &DiskStats) -> [Metric; 11] {
    let microseconds = |time: Duration| time.as_micros() as u64;
    [
        ("refrain_disk_pages", stats.pages as u64, "Pages of this model on disk."),
        ("refrain_disk_bytes", stats.directory_bytes, "Bytes of the directory, of all models."),
        ("refrain_disk_queued_bytes", stats.queued_bytes as u64, "Bytes that wait to be written."),
        ("refrain_disk_written_pages_total", stats.written_pages, "Pages written."),
        (
            "refrain_disk_write_microseconds_total",
            microseconds(stats.write_time),
            "Time that writing them took.",
        ),
        ("refrain_disk_read_pages_total", stats.read_pages, "Pages read."),
        (
            "refrain_disk_read_microseconds_total",
            microseconds(stats.read_time),
            "Time that reading them took.",
        ),
        ("refrain_disk_dropped_pages_total", stats.dropped_pages, "Pages that went from disk."),
        ("refrain_disk_damaged_pages_total", stats.damaged_pages, "Of these, damaged pages."),
        ("refrain_disk_refused_pages_total", stats.refused_pages, "Pages that were not written."),
        (
            "refrain_disk_dropped_notes_total",
            stats.dropped_notes,
            "Notes of uses and lives that were dropped, since the disk was far behind.",
        ),
    ]
}
