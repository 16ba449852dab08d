//! Ctrl-C: exit code 130, whatever the command does, unless a part of it handles it.

use std::sync::{Mutex, PoisonError};

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::whole_file;

/// The exit code of a program that was interrupted, as shells give it.
pub(crate) const EXIT_CODE: u8 = 130;

/// Where interruptions go, of handlers that may have gone. One place decides of each, so that a
/// handler that is done at once does not leave its own to end the process.
static HANDLERS: Mutex<Vec<UnboundedSender<()>>> = Mutex::new(Vec::new());

/// Ends the process at an interruption from here on, unless there is a [`Handler`]. Without a
/// thread or signals, an interruption ends it as the system does.
pub(crate) fn watch() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let Ok(runtime) = runtime else { return };
    let interruptions = runtime.block_on(async { signal(SignalKind::interrupt()) });
    let Ok(mut interruptions) = interruptions else { return };
    let wait = move || {
        while runtime.block_on(interruptions.recv()).is_some() {
            if !handled() {
                whole_file::remove_partial();
                std::process::exit(i32::from(EXIT_CODE));
            }
        }
    };
    // Detached: it waits as long as the process lives.
    let _ = std::thread::Builder::new().name("interrupt".to_owned()).spawn(wait);
}

/// Tells every handler of an interruption; whether there is one.
fn handled() -> bool {
    let mut handlers = HANDLERS.lock().unwrap_or_else(PoisonError::into_inner);
    handlers.retain(|handler| handler.send(()).is_ok());
    !handlers.is_empty()
}

/// While this is held, an interruption does not end the process: its holder waits for it.
pub(crate) struct Handler(UnboundedReceiver<()>);

impl Handler {
    pub(crate) fn new() -> Self {
        let (sender, receiver) = unbounded_channel();
        HANDLERS.lock().unwrap_or_else(PoisonError::into_inner).push(sender);
        Self(receiver)
    }

    /// Resolves at the next interruption since it was made.
    pub(crate) async fn interrupted(&mut self) {
        if self.0.recv().await.is_none() {
            // Its sender is kept until it fails, which needs this to have gone.
            std::future::pending().await
        }
    }
}
