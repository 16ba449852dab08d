//! The steps inside one layer.

use std::io::{Result, Write};

use engine::trace::{Step, Trace};
use package::{Activation, Architecture, Config, LayerPart, Package, Part, Suffix};

use super::paper::{Paper, number_text, shape_text};
use crate::quoted::quoted;

/// Positions of an attention row that are listed at most.
const POSITIONS_MAX: usize = 12;

/// The layer that is looked into.
pub(super) struct Layer<'a> {
    pub(super) trace: &'a Trace,
    pub(super) package: &'a Package,
}

impl Layer<'_> {
    /// Draws the layer's steps.
    pub(super) fn draw<W: Write>(&self, paper: &mut Paper<'_, W>) -> Result<()> {
        let residual = self.residual();
        self.norm(paper, "norm", "ln1.hook_normalized")?;
        self.projections(paper)?;
        self.attention(paper)?;
        self.output(paper)?;
        self.plain(paper, "residual", &residual, "hook_resid_mid")?;
        self.norm(paper, "norm", "ln2.hook_normalized")?;
        self.mlp(paper)?;
        let residual = "added to the residual above";
        self.plain(paper, "residual", residual, "hook_resid_post")
    }

    fn config(&self) -> &Config {
        &self.package.config
    }

    fn step(&self, site: &str) -> Option<&Step> {
        let name = format!("blocks.{}.{site}", self.trace.attention.layer);
        self.trace.steps.iter().find(|step| step.name == name)
    }

    fn shape(&self, site: &str) -> String {
        self.step(site).map(|step| shape_text(&step.shape)).unwrap_or_default()
    }

    /// The first numbers of the row of the token that attends.
    fn row(&self, site: &str) -> &[f32] {
        self.step(site).map(|step| step.row.as_slice()).unwrap_or_default()
    }

    /// The token that attends; the numbers of all steps are its.
    fn token(&self) -> String {
        quoted(&self.trace.tokens[self.trace.attention.query].bytes)
    }

    /// A step whose result is one tensor.
    fn plain<W: Write>(
        &self,
        paper: &mut Paper<'_, W>,
        name: &str,
        detail: &str,
        site: &str,
    ) -> Result<()> {
        paper.step(name, detail, &self.shape(site))?;
        paper.numbers(&self.token(), "", self.row(site))
    }

    fn norm<W: Write>(&self, paper: &mut Paper<'_, W>, name: &str, site: &str) -> Result<()> {
        self.plain(paper, name, norm_text(self.config()), site)
    }

    /// What the first addition adds to, which is not shown right above it.
    fn residual(&self) -> String {
        let input = self.row("hook_resid_pre").iter().take(2).map(|&number| number_text(number));
        let input = input.collect::<Vec<_>>().join(" ");
        format!("added to the layer's input ({input} …)")
    }

    /// `+ b` where the matrix `part` of this layer has a bias.
    fn bias(&self, part: LayerPart) -> &'static str {
        let part = Part::Layer(self.trace.attention.layer, part);
        match self.package.weights.vector(part, Suffix::Bias) {
            Ok(Some(_)) => " + b",
            _ => "",
        }
    }

    fn projections<W: Write>(&self, paper: &mut Paper<'_, W>) -> Result<()> {
        let config = self.config();
        let (queries, keys) = (config.heads * config.head_dim, config.kv_heads * config.head_dim);
        let part = match config.architecture {
            Architecture::Gpt2 => LayerPart::Qkv,
            Architecture::Llama => LayerPart::Q,
        };
        let (bias, outputs) = (self.bias(part), queries + 2 * keys);
        let head = self.trace.attention.head;
        let detail =
            format!("x·W({}, {outputs}){bias} → q, k, v at once; head {head}:", config.hidden);
        paper.step("q k v", &detail, &format!("(1, {}, {outputs})", self.trace.tokens.len()))?;
        for (label, site) in [("q", "attn.hook_q"), ("k", "attn.hook_k"), ("v", "attn.hook_v")] {
            paper.numbers(&self.token(), label, self.row(site))?;
        }
        let (heads, rows) = ([1, config.heads], [self.trace.tokens.len(), config.head_dim]);
        let shape = shape_text(&[heads, rows].concat());
        let detail = match config.heads / config.kv_heads {
            1 => format!("cut into {} heads of {}", config.heads, config.head_dim),
            _ => format!("{} heads of q share {} of k, v", config.heads, config.kv_heads),
        };
        paper.step("heads", &detail, &shape)?;
        let Some(rope) = &config.rope else { return Ok(()) };
        let (attention, base) = (&self.trace.attention, rope.base);
        let (query, head) = (attention.query, attention.head);
        let token = self.token();
        let detail = format!("q, k turned, base {base}; {token} at {query}, head {head}:");
        paper.step("rope", &detail, &shape)?;
        paper.numbers(&token, "q", &attention.q)?;
        paper.numbers(&token, "k", &attention.k)
    }

    fn attention<W: Write>(&self, paper: &mut Paper<'_, W>) -> Result<()> {
        let (config, attention) = (self.config(), &self.trace.attention);
        let (head, query) = (attention.head, attention.query);
        let token = self.token();
        let shape = self.shape("attn.hook_pattern");
        let detail = format!("head {head}: q of {token} · k / √({})", config.head_dim);
        paper.step("scores", &detail, &shape)?;
        let (visible, all) = (query + 1, self.trace.tokens.len());
        let detail = format!("{token} sees {visible} of {all}, none after it");
        paper.step("mask", &detail, &shape)?;
        let sum: f64 = attention.weights.iter().copied().map(f64::from).sum();
        let detail = format!("softmax, sum {sum:.4}; {token} reads");
        paper.step("weights", &detail, &shape)?;
        if !paper.explains() {
            paper.more("this head's reading, not next-token probability, not importance")?;
        }
        paper.share_heading("score", "weight", "v[0]")?;
        self.positions(paper)?;
        let detail = format!("Σ(weight·v) in each head; head {head}:");
        self.plain(paper, "values", &detail, "attn.hook_z")
    }

    /// Lists the positions of the attention row, the ones with the least weight left out.
    fn positions<W: Write>(&self, paper: &mut Paper<'_, W>) -> Result<()> {
        let attention = &self.trace.attention;
        let mut order: Vec<usize> = (0..attention.weights.len()).collect();
        let weight = |position: &usize| attention.weights[*position];
        order.sort_by(|a, b| weight(b).total_cmp(&weight(a)).then(a.cmp(b)));
        let rest = order.split_off(order.len().min(POSITIONS_MAX));
        order.sort_unstable();
        for &position in &order {
            let token = quoted(&self.trace.tokens[position].bytes);
            let score = attention.scores[position];
            if position <= attention.query {
                let value = attention.values.get(position).copied();
                paper.share(&token, score, attention.weights[position], value)?;
            } else {
                paper.hidden(&token, score)?;
            }
        }
        if rest.is_empty() {
            return Ok(());
        }
        let sum: f32 = rest.iter().map(weight).sum();
        paper.more(&format!("… and {} more with {sum:.4} together", rest.len()))
    }

    fn output<W: Write>(&self, paper: &mut Paper<'_, W>) -> Result<()> {
        let config = self.config();
        let (inputs, bias) =
            (config.heads * config.head_dim, self.bias(LayerPart::AttentionOutput));
        let detail = format!("the heads mixed: z·W({inputs}, {}){bias}", config.hidden);
        self.plain(paper, "output", &detail, "hook_attn_out")
    }

    fn mlp<W: Write>(&self, paper: &mut Paper<'_, W>) -> Result<()> {
        let config = self.config();
        let (hidden, inner) = (config.hidden, config.intermediate);
        let detail = match config.activation {
            Activation::Gelu => format!("{hidden} → {inner} → GELU → {hidden}, each token alone"),
            Activation::GeluTanh => {
                format!("{hidden} → {inner} → GELU (tanh) → {hidden}, each token alone")
            }
            Activation::Silu => {
                format!("{hidden} → gate, up {inner} → SiLU(gate)·up → {hidden}")
            }
        };
        paper.step("MLP", &detail, &self.shape("hook_mlp_out"))?;
        paper.numbers(&self.token(), "inner", self.row("mlp.hook_post"))?;
        paper.numbers(&self.token(), "out", self.row("hook_mlp_out"))
    }
}

/// What the model's norms compute.
pub(super) fn norm_text(config: &Config) -> &'static str {
    match config.architecture {
        Architecture::Gpt2 => "layer norm: (x−μ)/σ · gain + bias",
        Architecture::Llama => "RMS norm: x/√(mean x²) · gain",
    }
}
