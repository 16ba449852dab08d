//! Ctrl-C: exit code 130, whatever the command does.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::whole_file;

/// The exit code of a program that was interrupted, as shells give it.
pub(crate) const EXIT_CODE: u8 = 130;

/// How many parts of the program handle an interruption themselves.
static HANDLERS: AtomicUsize = AtomicUsize::new(0);

/// Ends the process at an interruption from here on, unless there is a [`Handler`]. Without a
/// thread or signals, an interruption ends it as the system does.
pub(crate) fn watch() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let Ok(runtime) = runtime else { return };
    let Ok(mut interruptions) = runtime.block_on(async { interruptions() }) else { return };
    let wait = move || {
        while runtime.block_on(interruptions.recv()).is_some() {
            if HANDLERS.load(Ordering::SeqCst) == 0 {
                whole_file::remove_partial();
                std::process::exit(i32::from(EXIT_CODE));
            }
        }
    };
    // Detached: it waits as long as the process lives.
    let _ = std::thread::Builder::new().name("interrupt".to_owned()).spawn(wait);
}

/// Every interruption from here on.
///
/// # Errors
/// What the system says.
///
/// # Panics
/// Outside of a runtime.
pub(crate) fn interruptions() -> std::io::Result<Signal> {
    signal(SignalKind::interrupt())
}

/// While this is held, an interruption does not end the process: its holder waits for it.
pub(crate) struct Handler;

impl Handler {
    pub(crate) fn new() -> Self {
        HANDLERS.fetch_add(1, Ordering::SeqCst);
        Self
    }
}

impl Drop for Handler {
    fn drop(&mut self) {
        HANDLERS.fetch_sub(1, Ordering::SeqCst);
    }
}
