//! One file for each command.

mod access_log;
mod answer;
mod article;
pub(crate) mod bench;
pub(crate) mod cache;
mod cache_order;
mod chat;
pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod incident;
pub(crate) mod info;
pub(crate) mod key;
pub(crate) mod man;
mod operator_log;
pub(crate) mod pull;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod tokenize;
pub(crate) mod trace;
mod warm;
pub(crate) mod why;
