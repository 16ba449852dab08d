//! Inference: the transformer over packed weights and paged K/V.
//!
//! An architecture is written once, over the operations of `ops`; [`Reference`] runs it in plain
//! f32, [`Model`] on the kernels. [`Taps`] let every tensor inside be seen.

mod architecture;
mod error;
mod fast;
mod model;
mod ops;
mod reference;
mod rows;
mod taps;

pub use error::{ForwardError, LoadError};
pub use model::{Batch, Model};
pub use reference::Reference;
pub use taps::{NoTaps, Site, TapPoint, Taps};
