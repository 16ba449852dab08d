//! `refrain serve --access-log FILE`: a line of JSON for each request.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread;

use server::AccessLog;

/// So many lines may wait to be written; more are lost, and counted. Each has some hundred bytes.
const LINES_WAITING_MAX: usize = 4096;

/// A log whose lines are appended to the file at `path` by a thread of its own, or written to the
/// output where that is `-`. A new file is private.
pub(crate) fn open(path: &Path) -> io::Result<AccessLog> {
    let mut out: Box<dyn Write + Send> = match path.to_str() {
        Some("-") => Box::new(io::stdout()),
        _ => Box::new(OpenOptions::new().append(true).create(true).mode(0o600).open(path)?),
    };
    let (lines, waiting) = sync_channel::<String>(LINES_WAITING_MAX);
    let lost = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&lost);
    thread::Builder::new().name("access-log".to_owned()).spawn(move || {
        for line in waiting {
            let lost = counted.swap(0, Ordering::Relaxed);
            let lost =
                if lost > 0 { format!("{{\"lost_lines\":{lost}}}\n") } else { String::new() };
            // A full disk costs lines, not answers.
            let _ = out.write_all(format!("{lost}{line}\n").as_bytes());
            let _ = out.flush();
        }
    })?;
    Ok(Box::new(move |line| {
        if lines.try_send(line).is_err() {
            lost.fetch_add(1, Ordering::Relaxed);
        }
    }))
}
