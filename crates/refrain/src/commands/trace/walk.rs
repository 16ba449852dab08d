//! Draws a whole trace, step by step.

use std::io::{Result, Write};

use engine::trace::{Candidate, DecodeStep, Step, Trace};
use package::Package;

use super::layer::{Layer, norm_text};
use super::paper::{Paper, shape_text};
use crate::explain::{Kind, Language};
use crate::quoted::quoted;
use crate::screen::Screen;

/// Most lines of the list of tokens.
const TOKEN_LINES_MAX: usize = 8;
/// Columns of a candidate in the table of all rows.
const CANDIDATE_COLUMNS: usize = 10;

/// Draws `trace` on stdout; with `rows`, also what every row predicts; with a language, also what
/// each step is for.
pub(super) fn draw(
    screen: Screen,
    trace: &Trace,
    package: &Package,
    rows: bool,
    language: Option<Language>,
) -> Result<()> {
    let walk = Walk { trace, package };
    // Chinese cannot be written in ASCII.
    let language = language.map(|one| if screen.unicode { one } else { Language::En });
    let kind = Kind::of(package);
    let explain = |name: &str| language.map_or("", |language| kind.explain(name, language));
    let mut paper = Paper::new(anstream::stdout().lock(), screen, &explain);
    walk.heading(&mut paper)?;
    walk.input(&mut paper)?;
    Layer { trace, package }.draw(&mut paper)?;
    walk.output(&mut paper)?;
    if rows {
        walk.rows(&mut paper)?;
    }
    walk.cache(&mut paper)
}

struct Walk<'a> {
    trace: &'a Trace,
    package: &'a Package,
}

impl Walk<'_> {
    fn heading<W: Write>(&self, paper: &mut Paper<'_, W>) -> Result<()> {
        let model = &self.trace.model;
        let architecture = self.package.config.architecture.name();
        paper.heading(&format!(
            "{}  {architecture}: {} layers, {} heads of {}, hidden {}, vocab {}",
            model.name, model.layers, model.heads, model.head_dim, model.hidden, model.vocab
        ))
    }

    fn step(&self, name: &str) -> Option<&Step> {
        self.trace.steps.iter().find(|step| step.name == name)
    }

    /// A step with the numbers of the first token, whose row the embedding shows.
    fn first<W: Write>(
        &self,
        paper: &mut Paper<'_, W>,
        title: &str,
        detail: &str,
        name: &str,
    ) -> Result<()> {
        let Some(step) = self.step(name) else { return Ok(()) };
        paper.step(title, detail, &shape_text(&step.shape))?;
        paper.numbers(&quoted(&self.trace.tokens[0].bytes), "", &step.first)
    }

    /// A step with the numbers of the token at `position`, which the trace has chosen.
    fn chosen<W: Write>(
        &self,
        paper: &mut Paper<'_, W>,
        title: &str,
        detail: &str,
        name: &str,
        position: usize,
    ) -> Result<()> {
        let Some(step) = self.step(name) else { return Ok(()) };
        paper.step(title, detail, &shape_text(&step.shape))?;
        paper.numbers(&quoted(&self.trace.tokens[position].bytes), "", &step.row)
    }

    /// From the text to what goes into the layer.
    fn input<W: Write>(&self, paper: &mut Paper<'_, W>) -> Result<()> {
        let tokens = &self.trace.tokens;
        let shape = shape_text(&[1, tokens.len()]);
        paper.step("tokens", "the model sees the ids, not the text", &shape)?;
        let shown = |token: &engine::trace::Token| format!("{} {}", quoted(&token.bytes), token.id);
        paper.list(&tokens.iter().map(shown).collect::<Vec<_>>(), TOKEN_LINES_MAX)?;
        let first = &tokens[0];
        let detail = format!("row {}, for {}", first.id, quoted(&first.bytes));
        self.first(paper, "embedding", &detail, "hook_embed")?;
        if self.package.config.rope.is_none() {
            let detail = format!("rows 0 to {} of the position table", tokens.len() - 1);
            self.first(paper, "position", &detail, "hook_pos_embed")?;
            let detail = "embedding + position, number by number";
            self.first(paper, "input", detail, "blocks.0.hook_resid_pre")?;
        } else {
            let detail = "no table: rope turns q and k in each layer";
            paper.step("position", detail, "")?;
        }
        let (layer, layers) = (self.trace.attention.layer, self.trace.model.layers);
        let before = match layer {
            0 => String::new(),
            1 => "; layer 0 before it, the same".to_owned(),
            _ => format!("; layers 0–{} before it, the same", layer - 1),
        };
        paper.heading(&format!("   layer {layer} of 0–{}{before}", layers - 1))?;
        if layer > 0 {
            let name = format!("blocks.{layer}.hook_resid_pre");
            let query = self.trace.attention.query;
            self.chosen(paper, "input", "what the layer before gave", &name, query)?;
        }
        Ok(())
    }

    /// From what the last layer gives to the next token.
    fn output<W: Write>(&self, paper: &mut Paper<'_, W>) -> Result<()> {
        let (config, trace) = (&self.package.config, self.trace);
        match config.layers - 1 - trace.attention.layer {
            0 => paper.heading("   after the last layer")?,
            1 => paper.heading("   one more layer, the same steps; then")?,
            more => paper.heading(&format!("   {more} more layers, the same steps; then"))?,
        }
        let last = trace.tokens.len() - 1;
        self.chosen(paper, "norm", norm_text(config), "ln_final.hook_normalized", last)?;
        let head =
            if config.tied_head { "the embedding table, tied" } else { "a table of its own" };
        let detail = format!("a score for each id, by {head}");
        self.chosen(paper, "logits", &detail, "logits", last)?;
        let Some(best) = trace.next.first() else { return Ok(()) };
        let detail = format!("softmax of the last row; greedy: {} {}", best.id, self.token(best));
        paper.step("next", &detail, &format!("({},)", config.vocab))?;
        paper.share_heading("logit", "p", "")?;
        trace.next.iter().try_for_each(|candidate| {
            let token = format!("{} {}", candidate.id, self.token(candidate));
            paper.share(&token, candidate.logit, candidate.probability, None)
        })
    }

    /// What every row predicts.
    fn rows<W: Write>(&self, paper: &mut Paper<'_, W>) -> Result<()> {
        let shape = shape_text(&[1, self.trace.tokens.len(), self.trace.model.vocab]);
        paper.step("every row", "row i predicts token i + 1", &shape)?;
        for (row, token) in self.trace.rows.iter().zip(&self.trace.tokens) {
            let cell = |candidate: &Candidate| {
                let token = paper.padded(&self.token(candidate), CANDIDATE_COLUMNS);
                format!("{token} {:.4}", candidate.probability)
            };
            let cells: Vec<String> = row.next.iter().map(cell).collect();
            paper.table(&format!("{} {}", row.position, quoted(&token.bytes)), &cells)?;
        }
        Ok(())
    }

    fn token(&self, candidate: &Candidate) -> String {
        quoted(self.package.tokenizer.bytes(candidate.id).unwrap_or_default())
    }

    /// The KV cache, the decode steps, and what a server keeps.
    fn cache<W: Write>(&self, paper: &mut Paper<'_, W>) -> Result<()> {
        let kv = &self.trace.kv;
        let (layers, shape) = (kv.layers, shape_text(&kv.k_shape));
        let detail = "K and V of each layer, kept; q is not";
        paper.step("KV cache", detail, &format!("{layers} × 2 × {shape}"))?;
        let [_, heads, tokens, width] = kv.k_shape;
        let each = kv.bytes_per_token / (2 * layers * heads * width);
        paper.more(&format!(
            "{} B = {tokens} tokens × {layers} layers × 2 × {heads} × {width} numbers × {each} B",
            kv.bytes
        ))?;
        self.trace.decode.iter().try_for_each(|step| self.decode(paper, step))?;
        paper.step("prompt cache", "those K and V, kept by a server for later requests", "")?;
        let reused = tokens - 1;
        paper.more(&format!(
            "the same prompt again: {reused} of {tokens} reused, the last computed"
        ))?;
        paper.more("another with the same cache_salt: up to the first different id")
    }

    fn decode<W: Write>(&self, paper: &mut Paper<'_, W>, step: &DecodeStep) -> Result<()> {
        let (length, token) = (step.cache_len, quoted(&step.token.bytes));
        let input = shape_text(&step.input_shape);
        let cached = shape_text(&step.k_shape);
        let before = length - 1;
        let detail = format!("{token} {input}; KV cache {before} → {length}: K, V {cached}");
        paper.step("decode", &detail, &shape_text(&step.logits_shape))?;
        let [q, k, weights] =
            [&step.new_q_shape, &step.new_k_shape, &step.attention_shape].map(|s| shape_text(s));
        paper.more(&format!("new q {q}; k, v {k}; weights {weights}"))?;
        let (done, without) = (step.layer_evaluations, step.layer_evaluations_without_cache);
        paper.more(&format!("token-layer evaluations: {done}; without the cache {without}"))?;
        let next = step
            .next
            .iter()
            .map(|candidate| format!("{} {:.4}", self.token(candidate), candidate.probability));
        paper.list(&[vec!["then".to_owned()], next.collect()].concat(), 1)
    }
}
