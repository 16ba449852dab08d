//! A loaded model, and its step.

use std::sync::Arc;

use kernels::{KvGeometry, KvStore, KvType, RopeTable, RowPlace, Team};
use package::{Config, Package, Rope, RopeScaling};

use crate::architecture::Transformer;
use crate::error::{ForwardError, LoadError};
use crate::fast::{FastOps, Faulty, MatMul, PackLoad, Packed, Scratch, bend};
use crate::fault::Fault;
use crate::rows::{Heads, Rows};
use crate::taps::Taps;

/// A digest of the sources that decide which bits K, V and logits have (`build.rs`), so that K/V
/// which a build from others has stored are not taken for this one's.
const NUMERICS_DIGEST: &str = env!("NUMERICS_DIGEST");

/// One step's rows. Row `r` is `tokens[r]`, standing at `places[r]`; its keys and values are
/// written there, layer by layer, before any row attends. Rows of one sequence may follow each
/// other in one step, and rows of several sequences may share it.
#[derive(Debug, Clone, Copy)]
pub struct Batch<'a> {
    /// The rows' token ids.
    pub tokens: &'a [u32],
    /// Where the rows stand, as many as tokens.
    pub places: &'a [RowPlace<'a>],
    /// The rows whose logits are wanted, in the order in which they are wanted. May be empty.
    pub logit_rows: &'a [usize],
}

/// A model with its weights packed for the kernels.
pub struct Model {
    config: Config,
    team: Arc<Team>,
    transformer: Transformer<Packed>,
    rope: Option<RopeTable>,
    kv_type: KvType,
    scratch: Scratch,
    logits: Rows,
    matmul: MatMul,
    fault: Option<Fault>,
}

impl Model {
    /// Packs the weights of `package` for the instruction set of `team`, on all processors, and
    /// gives the file's pages back. `context` is the number of positions to prepare for; it is cut
    /// to what the model was made for. `progress` is told the bytes done and those in all, from
    /// several threads.
    ///
    /// # Errors
    /// [`LoadError`] if a weight is missing or does not fit the kernels.
    pub fn load(
        package: &Package,
        team: Arc<Team>,
        context: usize,
        progress: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<Model, LoadError> {
        let mut config = package.config.clone();
        config.context = config.context.min(context);
        let load = PackLoad::new(&package.weights, config.norm_epsilon, team.isa(), progress);
        let transformer = Transformer::load(&config, &load)?;
        load.finish();
        let rope = config.rope.as_ref().map(|rope| rope_table(rope, &config)).transpose()?;
        let kv_type = load.kv_type();
        let (scratch, logits) = (Scratch::default(), Rows::default());
        let matmul = kernels::matmul;
        let fault = None;
        Ok(Model { config, team, transformer, rope, kv_type, scratch, logits, matmul, fault })
    }

    /// Brings a deliberate error in, or takes it out.
    #[doc(hidden)]
    pub fn set_fault(&mut self, fault: Option<Fault>) {
        (self.matmul, self.fault) = match fault {
            Some(Fault::BatchDependent) => (kernels::matmul_batch_dependent as MatMul, None),
            fault => (kernels::matmul as MatMul, fault),
        };
    }

    /// The model's dimensions. Its context is what the model was loaded for.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The team that runs the model.
    pub fn team(&self) -> &Team {
        &self.team
    }

    /// The shape of the K/V that the model needs, in the type that suits its weights: f32 if they
    /// are all f32, f16 if they are all floats, else bf16. A store of another type works too.
    pub fn kv_geometry(&self) -> KvGeometry {
        KvGeometry {
            layers: self.config.layers,
            kv_heads: self.config.kv_heads,
            head_dim: self.config.head_dim,
            kv_type: self.kv_type,
        }
    }

    /// Names everything that decides which bits K, V and logits have, for the same weights and
    /// tokens. K/V may be shared only where it is equal.
    pub fn numerics_id(&self, kv_type: KvType) -> String {
        let kv = kv_type.name();
        let rope = self.config.rope.as_ref().map_or("none".to_owned(), |rope| format!("{rope:?}"));
        let isa = self.team.isa();
        let isa = if isa.has_bf16() { format!("{isa} with bf16") } else { isa.to_string() };
        format!(
            "sources {NUMERICS_DIGEST}, {isa}, activations i8/32, i16/64 or bf16, kv {kv}, \
             rope {rope}"
        )
    }

    /// Runs one step: writes the rows' K/V to `kv` and gives the logits of `batch.logit_rows`,
    /// `logit_rows.len() x vocab`. `taps` see the tensors that they want; the step is the same
    /// whether they look or not.
    ///
    /// A row's bits depend on its own tokens and positions only: not on the other rows of the step,
    /// nor on where the step's bounds are.
    ///
    /// # Errors
    /// [`ForwardError`] if a token, position, page or row is out of range. K/V at the places of
    /// `batch` are unspecified then.
    ///
    /// # Panics
    /// If `kv` has another geometry than [`Model::kv_geometry`], its type apart.
    pub fn forward(
        &mut self,
        kv: &mut KvStore,
        batch: &Batch,
        taps: &mut dyn Taps,
    ) -> Result<&[f32], ForwardError> {
        let geometry = KvGeometry { kv_type: kv.geometry().kv_type, ..self.kv_geometry() };
        assert_eq!(kv.geometry(), geometry, "the K/V store was made for another model");
        let positions = batch.places.iter().map(|place| place.position);
        ForwardError::check(&self.config, batch.tokens, positions.clone(), batch.logit_rows)?;
        self.scratch.positions.clear();
        self.scratch.positions.extend(positions);
        let bent = bend(self.fault, batch.places, self.config.context);
        let mut ops = FastOps {
            team: &self.team,
            kv,
            rope: self.rope.as_ref(),
            tokens: batch.tokens,
            places: batch.places,
            logit_rows: batch.logit_rows,
            taps: if taps.any() { Some(taps) } else { None },
            scratch: &mut self.scratch,
            logits: std::mem::take(&mut self.logits),
            matmul: self.matmul,
            narrowed: None,
            error: None,
        };
        let logits = match self.fault {
            None => self.transformer.forward(&mut ops),
            Some(fault) => {
                let (heads, context) = (Heads::of(&self.config), self.config.context);
                let mut faulty = Faulty::new(&mut ops, fault, &bent, heads, context);
                self.transformer.forward(&mut faulty)
            }
        };
        let error = ops.error.take();
        self.logits = logits;
        match error {
            Some(error) => Err(error.into()),
            None => Ok(&self.logits.data),
        }
    }
}

fn rope_table(rope: &Rope, config: &Config) -> Result<RopeTable, LoadError> {
    let scaling = match rope.scaling {
        RopeScaling::None => kernels::RopeScaling::None,
        RopeScaling::Linear { factor } => kernels::RopeScaling::Linear { factor },
        RopeScaling::Llama3 {
            factor,
            low_frequency_factor,
            high_frequency_factor,
            original_context,
        } => kernels::RopeScaling::Llama3 {
            factor,
            low_frequency_factor,
            high_frequency_factor,
            original_context,
        },
    };
    let factors = rope.frequency_factors.as_deref();
    let (dims, base) = (rope.dims, rope.base);
    Ok(RopeTable::new(config.head_dim, dims, base, scaling, factors, config.context)?)
}
