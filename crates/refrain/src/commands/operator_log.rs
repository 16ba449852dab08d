//! What a running server tells its operator on stderr.

use std::sync::mpsc::sync_channel;
use std::thread;

use server::{Entry, Log};

use crate::terminal::Terminal;

/// So many lines may wait to be written; more are lost.
const LINES_WAITING_MAX: usize = 256;

/// A log whose lines are written by a thread of its own: a stderr that nobody reads holds up no
/// request.
pub(crate) fn start(terminal: &Terminal) -> std::io::Result<Log> {
    let (lines, waiting) = sync_channel::<(Entry, String)>(LINES_WAITING_MAX);
    let terminal = terminal.clone();
    thread::Builder::new().name("log".to_owned()).spawn(move || {
        for (entry, text) in waiting {
            let verb = match entry {
                Entry::Warning => "Warning",
                Entry::Miss => "Miss",
            };
            terminal.status(verb, &text);
        }
    })?;
    Ok(Box::new(move |entry, text| {
        let _ = lines.try_send((entry, text.to_owned()));
    }))
}
