//! The article's checklist, as code: 185 rows about how a language model, its KV cache and a
//! server's prompt cache work, each with a check that can fail.
//!
//! The article follows the prompt `The cat sat on` through DistilGPT-2, and then a request through
//! a server. A row says what it needs ([`Need`]); a row whose need is not met is `not run` with the
//! reason, never passed over. What the engine computed is seen through its taps and its K/V and
//! compared with the same formulas in plain double precision, with other runs, or with the
//! article's numbers.

mod broken;
mod check;
mod error;
mod lack;
mod live;
mod oracle;
mod real;
mod report;
mod row;
mod rows;
mod sampling;
mod sequence;
mod shape;
mod subject;
mod tally;
#[cfg(test)]
mod tampered;
mod weights_file;

pub use check::{ArticleOptions, Progress, check_article};
pub use error::ArticleError;
pub use lack::Lack;
pub use report::{ArticleReport, Outcome, RowReport, SectionTitle, SelfTest, Totals};
pub use row::Need;
