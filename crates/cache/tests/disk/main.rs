//! The disk tier: what it keeps, shares, gives up, and refuses to serve.

mod crash;
mod deletion;
mod full;
mod model;
mod scenes;
mod support;
