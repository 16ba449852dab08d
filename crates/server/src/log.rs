//! What the operator is told while the server runs.

/// What a line of the log is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Something of the operator's is wrong, and the server goes on without it.
    Warning,
    /// A request reused less than it could have.
    Miss,
}

/// Takes a line of the log, and must not wait for anybody who reads it.
pub type Log = Box<dyn Fn(Entry, &str) + Send + Sync>;

/// Takes a line of the access log, and must not wait for anybody who reads it.
pub type AccessLog = Box<dyn Fn(String) + Send + Sync>;
