//! What operators and routers ask of a server.

pub(crate) mod cache;
pub(crate) mod health;
pub(crate) mod metrics;
pub(crate) mod tokenize;
