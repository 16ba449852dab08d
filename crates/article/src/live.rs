//! A real server on the model, and a client of it: what the rows about a server look at.

use std::sync::Arc;

use package::Package;

use crate::error::ArticleError;
use crate::tally::{Seen, Stop, Tally};

/// A server on a loopback port.
pub(crate) struct Live {
    /// What it serves.
    pub(crate) package: Arc<Package>,
}

impl Live {
    /// Starts a server on `package`.
    ///
    /// # Errors
    /// The engine cannot be started.
    pub(crate) fn start(package: &Arc<Package>) -> Result<Live, ArticleError> {
        Ok(Live { package: package.clone() })
    }
}

/// For rows whose check is still to come.
pub(crate) fn later(live: &mut Live, _tally: &mut Tally) -> Seen {
    Err(Stop::not_run(format!("no server on {} is asked yet", live.package.name)))
}
