//! `refrain check`: hold a model to a promise.

use std::io::Write;

use serde_json::json;

use crate::cli::{Check, CheckArguments, CheckExactArguments};
use crate::failure::Failure;
use crate::loading;
use crate::terminal::Terminal;

pub(crate) fn run(arguments: &CheckArguments, terminal: &Terminal) -> Result<(), Failure> {
    match &arguments.check {
        Check::Exact(arguments) => exact(arguments, terminal),
    }
}
