//! The lines of a file, within limits.

use std::io::{BufRead, Read};

use super::error::ReplayError;
use crate::prompt::PROMPT_BYTES_MAX;

/// More lines than this are refused.
const LINES_MAX: u64 = 10_000_000;

/// Lines that are not blank, with their numbers, one at a time.
pub(crate) struct Lines<R> {
    reader: R,
    line: Vec<u8>,
    number: u64,
    bytes: u64,
}

impl<R: BufRead> Lines<R> {
    pub(crate) fn new(reader: R) -> Self {
        Self { reader, line: Vec::new(), number: 0, bytes: 0 }
    }

    /// Bytes read so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Goes on to the next line that is not blank; `false` at the end of the file.
    pub(crate) fn advance(&mut self) -> Result<bool, ReplayError> {
        // One byte more than is accepted, so that a longer line is seen to be one.
        let most = PROMPT_BYTES_MAX as u64 + 1;
        loop {
            self.line.clear();
            let read = self.reader.by_ref().take(most).read_until(b'\n', &mut self.line)? as u64;
            if read == 0 {
                return Ok(false);
            }
            self.bytes += read;
            self.number += 1;
            if read == most && !self.line.ends_with(b"\n") {
                let problem = format!("it is longer than {PROMPT_BYTES_MAX} bytes");
                return Err(ReplayError::at(self.number, problem));
            }
            if self.number > LINES_MAX {
                let problem = format!("no more than {LINES_MAX} lines are read");
                return Err(ReplayError::at(self.number, problem));
            }
            if !self.current().1.is_empty() {
                return Ok(true);
            }
        }
    }

    /// The line's number, from 1, and its bytes without white space around them.
    pub(crate) fn current(&self) -> (u64, &[u8]) {
        let mut line = self.line.as_slice();
        if self.number == 1 {
            // Some editors put a mark before a text.
            line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
        }
        (self.number, line.trim_ascii())
    }
}
