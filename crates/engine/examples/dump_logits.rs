//! Writes the logits of every row of a token sequence to standard output, for oracles outside of
//! this project: rows x vocab, as raw little-endian f32.
//!
//!     dump_logits MODEL TOKENS.json [--reference | --kv-type f32|f16|bf16|q8_0]
//!
//! MODEL is a `.gguf` file or a directory with `config.json`; TOKENS.json an array of token ids.
//! With `--reference` the logits are the readable f32 forward's; `--kv-type` stores K and V in
//! another type than the model's own.

use std::error::Error;
use std::io::{BufWriter, Write};
use std::num::NonZero;
use std::path::Path;
use std::sync::Arc;
use std::thread::available_parallelism;

use engine::{Batch, Model, NoTaps, Reference};
use kernels::{KvStore, KvType, PAGE_TOKENS, PageId, RowPlace, Team};
use package::Package;

/// Rows in one step, which bounds the memory of their logits.
const CHUNK: usize = 128;
const USAGE: &str = "usage: dump_logits MODEL TOKENS.json [--reference | --kv-type f32|f16|q8_0]";

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (model, tokens, options) = match arguments.as_slice() {
        [model, tokens, options @ ..] => (model, tokens, options),
        _ => return Err(USAGE.into()),
    };
    let (reference, kv_type) = match options {
        [] => (false, None),
        [flag] if flag == "--reference" => (true, None),
        [flag, name] if flag == "--kv-type" => (false, Some(KvType::of_name(name).ok_or(USAGE)?)),
        _ => return Err(USAGE.into()),
    };
    let package = Package::open(Path::new(model))?;
    let tokens: Vec<u32> = serde_json::from_slice(&std::fs::read(tokens)?)?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    if reference {
        dump_reference(&package, &tokens, &mut out)?;
    } else {
        dump_fast(&package, &tokens, kv_type, &mut out)?;
    }
    out.flush()?;
    Ok(())
}

fn write(out: &mut impl Write, logits: &[f32]) -> std::io::Result<()> {
    logits.iter().try_for_each(|logit| out.write_all(&logit.to_le_bytes()))
}

fn dump_reference(
    package: &Package,
    tokens: &[u32],
    out: &mut impl Write,
) -> Result<(), Box<dyn Error>> {
    let rows: Vec<usize> = (0..tokens.len()).collect();
    let logits = Reference::load(package)?.forward(tokens, &rows, &mut NoTaps)?;
    Ok(write(out, &logits)?)
}

fn dump_fast(
    package: &Package,
    tokens: &[u32],
    kv_type: Option<KvType>,
    out: &mut impl Write,
) -> Result<(), Box<dyn Error>> {
    let threads = available_parallelism().map_or(1, NonZero::get);
    let mut model = Model::load(package, Arc::new(Team::new(threads)?), usize::MAX, &|_, _| {})?;
    let pages: Vec<PageId> = (0..tokens.len().div_ceil(PAGE_TOKENS) as PageId).collect();
    let mut geometry = model.kv_geometry();
    geometry.kv_type = kv_type.unwrap_or(geometry.kv_type);
    let mut kv = KvStore::new(geometry, pages.len())?;
    let rows: Vec<usize> = (0..CHUNK).collect();
    for (chunk, tokens) in tokens.chunks(CHUNK).enumerate() {
        let place = |row| RowPlace { pages: &pages, position: chunk * CHUNK + row };
        let places: Vec<RowPlace> = (0..tokens.len()).map(place).collect();
        let batch = Batch { tokens, places: &places, logit_rows: &rows[..tokens.len()] };
        write(out, model.forward(&mut kv, &batch, &mut NoTaps)?)?;
    }
    Ok(())
}
