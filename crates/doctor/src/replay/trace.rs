//! A file of requests, replayed.

use std::io::BufRead;

use cache::PAGE_TOKENS;
use serde_json::{Map, Value};

use super::Request;
use super::error::ReplayError;
use super::lines::Lines;
use super::mooncake::{BLOCK_TOKENS, Blocks};
use super::report::{Replay, TraceFormat};
use super::requests;
use super::simulation::Simulation;
use crate::conversation::PromptMaker;

/// Requests that are read before they are served, at every capacity.
const BATCH: usize = 256;

/// A file of requests, one JSON object a line, from its beginning.
pub struct Trace<R> {
    lines: Lines<R>,
    format: TraceFormat,
}

/// What makes requests of lines.
enum Reader<'a> {
    Mooncake(Blocks),
    Requests(PromptMaker<'a>),
}

impl Reader<'_> {
    /// The request of a line; `None` for one that is left out.
    fn request(&mut self, number: u64, line: &[u8]) -> Result<Option<Request>, ReplayError> {
        match self {
            Self::Mooncake(blocks) => blocks.request(number, line).map(Some),
            Self::Requests(maker) => requests::request(number, line, *maker),
        }
    }
}

impl<R: BufRead> Trace<R> {
    /// Reads the first line, which says what all are: a line with `hash_ids` is Mooncake's, and any
    /// other one the body of a request.
    ///
    /// # Errors
    /// [`ReplayError`] for a file without a line, or whose first one is no JSON.
    pub fn open(reader: R) -> Result<Self, ReplayError> {
        let mut lines = Lines::new(reader);
        if !lines.advance()? {
            return Err(ReplayError::Empty);
        }
        let (number, line) = lines.current();
        let first: Value =
            serde_json::from_slice(line).map_err(|error| ReplayError::json(number, &error))?;
        let is_mooncake = |object: &Map<_, _>| object.contains_key("hash_ids");
        let format = match first.as_object().is_some_and(is_mooncake) {
            true => TraceFormat::Mooncake,
            false => TraceFormat::Requests,
        };
        Ok(Self { lines, format })
    }

    /// What its lines are.
    pub fn format(&self) -> TraceFormat {
        self.format
    }

    /// Replays all of it through a prompt cache of each of `capacities`, in tokens; `None` is
    /// without a bound. `maker` reads the bodies of requests, and is not needed for Mooncake's
    /// lines. `progress` is told how many bytes of the file are done.
    ///
    /// Tokens are held in pages of 16, in a Mooncake trace in blocks of 512; a capacity that is no
    /// multiple holds as many as fit. A request that is longer than the capacity leaves the
    /// beginning of its prompt behind.
    ///
    /// # Errors
    /// [`ReplayError`] that names the first line at fault, and for a capacity below one block.
    pub fn replay(
        mut self,
        capacities: &[Option<u64>],
        maker: Option<PromptMaker<'_>>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Replay, ReplayError> {
        let (mut reader, block) = match (self.format, maker) {
            (TraceFormat::Mooncake, _) => (Reader::Mooncake(Blocks::default()), BLOCK_TOKENS),
            (TraceFormat::Requests, Some(maker)) => (Reader::Requests(maker), PAGE_TOKENS as u64),
            (TraceFormat::Requests, None) => return Err(ReplayError::NoModel),
        };
        if let Some(&capacity) = capacities.iter().flatten().find(|&&capacity| capacity < block) {
            return Err(ReplayError::TooSmall { capacity, block });
        }
        let mut simulations: Vec<Simulation> =
            capacities.iter().map(|&capacity| Simulation::new(capacity, block)).collect();
        let (mut requests, mut embeddings, mut prompt_tokens) = (0, 0, 0);
        let (mut first, mut last) = (None, 0);
        let mut more = true;
        while more {
            let mut batch = Vec::with_capacity(BATCH);
            while more && batch.len() < BATCH {
                let (number, line) = self.lines.current();
                match reader.request(number, line)? {
                    Some(request) => batch.push(request),
                    None => embeddings += 1,
                }
                more = self.lines.advance()?;
            }
            serve(&mut simulations, &batch);
            requests += batch.len();
            prompt_tokens += batch.iter().map(|request| request.prompt_tokens).sum::<u64>();
            first = first.or(batch.first().map(|request| request.at.0));
            last = batch.last().map_or(last, |request| request.at.0);
            progress(self.lines.bytes());
        }
        let has_time = self.format == TraceFormat::Mooncake;
        let duration_ms = first.filter(|_| has_time).map(|first| last.saturating_sub(first));
        Ok(Replay {
            format: self.format,
            requests,
            embeddings,
            prompt_tokens,
            block_tokens: block,
            duration_ms,
            capacities: simulations.into_iter().map(Simulation::into_report).collect(),
        })
    }
}

fn serve(simulations: &mut [Simulation], batch: &[Request]) {
    for simulation in simulations {
        batch.iter().for_each(|request| simulation.serve(request));
    }
}
