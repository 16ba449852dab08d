//! The model that the rows look at, and the runs of it that they share.

use std::collections::HashMap;
use std::fmt::Display;
use std::rc::Rc;
use std::sync::Arc;

use engine::trace::{Candidate, Trace};
use engine::{Fault, Model, NoTaps};
use kernels::{KvType, Team};
use package::Package;

use crate::error::ArticleError;
use crate::oracle::{Oracle, wide};
use crate::sequence::{Kv, Pass, Sequence};
use crate::tally::{Stop, Tally};

/// The article's prompt.
pub(crate) const PROMPT: &str = "The cat sat on";
/// Decode steps that rows may take after the prompt.
pub(crate) const DECODE_STEPS: usize = 3;

/// A loaded model and the prompt's tokens.
pub(crate) struct Subject {
    pub(crate) package: Arc<Package>,
    pub(crate) model: Model,
    pub(crate) prompt: Vec<u32>,
    passes: HashMap<Vec<u32>, Rc<Pass>>,
    story: Option<Rc<Story>>,
    trace: Option<Rc<Trace>>,
}

/// The prompt's prefill and the steps after it, in one sequence.
pub(crate) struct Story {
    pub(crate) prefill: Pass,
    /// The likeliest token after the prompt, and after each step.
    pub(crate) chosen: Vec<u32>,
    /// The steps after the prefill, each on the token chosen before.
    pub(crate) decode: Vec<Pass>,
    /// The KV cache after the prefill, and after each step.
    pub(crate) kv: Vec<Kv>,
}

impl Subject {
    /// Loads the model and encodes the prompt.
    pub(crate) fn load(
        package: &Arc<Package>,
        threads: Option<usize>,
    ) -> Result<Subject, ArticleError> {
        let prompt = package.tokenizer.encode(PROMPT, false)?.ids;
        let tokens = prompt.len();
        if tokens < 3 {
            return Err(ArticleError::Prompt { tokens, problem: "is too few" });
        }
        if tokens + DECODE_STEPS > package.config.context {
            return Err(ArticleError::Prompt { tokens, problem: "do not fit its context" });
        }
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let team = Arc::new(Team::new(threads.unwrap_or(cores))?);
        let model = Model::load(package, team, package.config.context, &|_, _| {})?;
        let (package, passes) = (package.clone(), HashMap::new());
        Ok(Subject { package, model, prompt, passes, story: None, trace: None })
    }

    /// Brings a deliberate error into the model, or takes it out.
    pub(crate) fn set_fault(&mut self, fault: Option<Fault>) {
        self.model.set_fault(fault);
        self.passes.clear();
        (self.story, self.trace) = (None, None);
    }

    /// A prefill of `tokens`, in a sequence of its own; computed once.
    pub(crate) fn pass(&mut self, tokens: &[u32]) -> Result<Rc<Pass>, Stop> {
        if let Some(pass) = self.passes.get(tokens) {
            return Ok(pass.clone());
        }
        let pass = Rc::new(self.fresh(tokens)?);
        self.passes.insert(tokens.to_vec(), pass.clone());
        Ok(pass)
    }

    /// A prefill of `tokens`, in a sequence of its own; computed anew.
    pub(crate) fn fresh(&mut self, tokens: &[u32]) -> Result<Pass, Stop> {
        let failed = |error| Stop::failed("a prefill", error);
        let mut sequence = Sequence::new(&self.model, tokens.len()).map_err(failed)?;
        sequence.step(&mut self.model, tokens).map_err(failed)
    }

    /// The prompt's prefill.
    pub(crate) fn prefill(&mut self) -> Result<Rc<Pass>, Stop> {
        let prompt = self.prompt.clone();
        self.pass(&prompt)
    }

    /// The prompt's prefill and some steps after it; computed once.
    pub(crate) fn story(&mut self) -> Result<Rc<Story>, Stop> {
        if let Some(story) = &self.story {
            return Ok(story.clone());
        }
        let failed = |error| Stop::failed("a step", error);
        let capacity = self.prompt.len() + DECODE_STEPS;
        let mut sequence = Sequence::new(&self.model, capacity).map_err(failed)?;
        let prefill = sequence.step(&mut self.model, &self.prompt).map_err(failed)?;
        let vocab = self.package.config.vocab;
        let mut story = Story {
            chosen: vec![likeliest(&prefill.logits, vocab)],
            prefill,
            decode: vec![],
            kv: vec![],
        };
        story.kv.push(sequence.kv());
        for step in 0..DECODE_STEPS {
            let pass = sequence.step(&mut self.model, &[story.chosen[step]]).map_err(failed)?;
            story.chosen.push(likeliest(&pass.logits, vocab));
            story.decode.push(pass);
            story.kv.push(sequence.kv());
        }
        let story = Rc::new(story);
        self.story = Some(story.clone());
        Ok(story)
    }
}

impl Subject {
    /// What `refrain trace` shows of the prompt and one step after it; computed once.
    pub(crate) fn trace(&mut self) -> Result<Rc<Trace>, Stop> {
        if let Some(trace) = &self.trace {
            return Ok(trace.clone());
        }
        let trace = Rc::new(self.traced(5, 1)?);
        self.trace = Some(trace.clone());
        Ok(trace)
    }

    fn traced(&mut self, top: usize, decode: usize) -> Result<Trace, Stop> {
        let keep = &|_| false;
        let options = engine::trace::Options { layer: 0, head: 0, query: -1, decode, top, keep };
        engine::trace::trace(&mut self.model, &self.package, &self.prompt, &options)
            .map_err(|error| Stop::failed("a trace", error))
    }

    /// All tokens that could come after the prompt.
    pub(crate) fn all_candidates(&mut self) -> Result<Vec<Candidate>, Stop> {
        Ok(self.traced(self.package.config.vocab, 0)?.next)
    }

    /// The logits of the prompt's last row, where no other was asked for.
    pub(crate) fn last_row_alone(&mut self) -> Result<Vec<f32>, Stop> {
        let failed = |error| Stop::failed("a prefill", error);
        let mut sequence = Sequence::new(&self.model, self.prompt.len()).map_err(failed)?;
        let last = [self.prompt.len() - 1];
        sequence.run(&mut self.model, &self.prompt, &last, &mut NoTaps).map_err(failed)
    }

    /// The step after the prompt twice: as it is, and with the values of layer 0 doubled in the
    /// cache before.
    pub(crate) fn with_other_values(&mut self) -> Result<[Pass; 2], Stop> {
        let failed = |error| Stop::failed("a step", error);
        let capacity = self.prompt.len() + 1;
        let mut step = |doubled: bool| {
            let mut sequence = Sequence::new(&self.model, capacity)?;
            sequence.step(&mut self.model, &self.prompt)?;
            if doubled {
                sequence.double_values(self.model.team())?;
            }
            sequence.step(&mut self.model, &self.prompt[..1])
        };
        Ok([step(false).map_err(failed)?, step(true).map_err(failed)?])
    }

    /// How many numbers other than zero the cache's memory holds after the prompt.
    pub(crate) fn written_numbers(&mut self) -> Result<usize, Stop> {
        let failed = |error| Stop::failed("a prefill", error);
        let mut sequence = Sequence::new(&self.model, self.prompt.len()).map_err(failed)?;
        sequence.step(&mut self.model, &self.prompt).map_err(failed)?;
        Ok(sequence.written_numbers())
    }

    /// A token that is another than `id`.
    pub(crate) fn other_than(&self, id: u32) -> u32 {
        (id + 1) % self.package.config.vocab as u32
    }

    /// How far what reads K and V from the cache may be from the exact result.
    pub(crate) fn kv_bound(&self) -> f64 {
        Oracle::kv_bound(self.model.kv_geometry().kv_type)
    }

    /// What is kept in the cache must be what was computed, rounded if the cache rounds.
    pub(crate) fn kept(
        &self,
        tally: &mut Tally,
        what: impl Display,
        computed: &[f32],
        kept: &[f32],
    ) -> Result<(), Stop> {
        match self.model.kv_geometry().kv_type {
            KvType::F32 => tally.same_bits(what, computed, kept),
            KvType::BF16 => tally.close(what, &wide(computed), kept, 4e-3),
            KvType::F16 => tally.close(what, &wide(computed), kept, 1e-3),
            // Half a step of the greatest of 32 numbers.
            KvType::Q8_0 => tally.close(what, &wide(computed), kept, 0.5 / 127.0),
        }
    }
}

#[cfg(test)]
impl Subject {
    /// Changes what was observed of the prompt, the steps after it, and some other tokens.
    pub(crate) fn tamper(
        &mut self,
        of_pass: fn(&mut Pass),
        of_kv: fn(&mut Kv),
    ) -> Result<(), Stop> {
        self.set_fault(None);
        let mut story = self.story()?;
        self.story = None;
        if let Some(story) = Rc::get_mut(&mut story) {
            of_pass(&mut story.prefill);
            story.decode.iter_mut().for_each(of_pass);
            story.kv.iter_mut().for_each(of_kv);
        }
        self.story = Some(story);
        let twice = vec![self.prompt[0], self.prompt[1], self.prompt[0]];
        for tokens in [self.prompt.clone(), twice, vec![0]] {
            let mut pass = self.fresh(&tokens)?;
            of_pass(&mut pass);
            self.passes.insert(tokens, Rc::new(pass));
        }
        Ok(())
    }
}

/// The greatest logit's id in the last row; the lowest of equals.
pub(crate) fn likeliest(logits: &[f32], vocab: usize) -> u32 {
    let last = &logits[logits.len().saturating_sub(vocab)..];
    let better = |best: usize, id: usize| if last[id] > last[best] { id } else { best };
    (0..last.len()).fold(0, better) as u32
}
