//! Model files, their configurations, and where they come from, through the public interface.

mod config;
mod formats;
#[cfg(feature = "hub")]
mod hub;
mod package;
mod pip;
mod tiny;
mod weights;
