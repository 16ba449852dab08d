//! Writes the logits of every row of a token sequence to standard output, for oracles outside of
//! this project: rows x vocab, as raw little-endian f32.
//!
//!     dump_logits MODEL TOKENS.json [--reference]
//!
//! MODEL is a `.gguf` file or a directory with `config.json`; TOKENS.json an array of token ids.
//! With `--reference` the logits are the readable f32 forward's.

use std::error::Error;
use std::io::{BufWriter, Write};
use std::num::NonZero;
use std::path::Path;
use std::sync::Arc;
use std::thread::available_parallelism;

use engine::{Batch, Model, NoTaps, Reference};
use kernels::{KvStore, PAGE_TOKENS, PageId, RowPlace, Team};
use package::Package;

/// Rows in one step, which bounds the memory of their logits.
const CHUNK: usize = 128;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (model, tokens, reference) = match arguments.as_slice() {
        [model, tokens] => (model, tokens, false),
        [model, tokens, flag] if flag == "--reference" => (model, tokens, true),
        _ => return Err("usage: dump_logits MODEL TOKENS.json [--reference]".into()),
    };
    let package = Package::open(Path::new(model))?;
    let tokens: Vec<u32> = serde_json::from_slice(&std::fs::read(tokens)?)?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    if reference {
        dump_reference(&package, &tokens, &mut out)?;
    } else {
        dump_fast(&package, &tokens, &mut out)?;
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
    out: &mut impl Write,
) -> Result<(), Box<dyn Error>> {
    let threads = available_parallelism().map_or(1, NonZero::get);
    let mut model = Model::load(package, Arc::new(Team::new(threads)?), usize::MAX, &|_, _| {})?;
    let pages: Vec<PageId> = (0..tokens.len().div_ceil(PAGE_TOKENS) as PageId).collect();
    let mut kv = KvStore::new(model.kv_geometry(), pages.len())?;
    let rows: Vec<usize> = (0..CHUNK).collect();
    for (chunk, tokens) in tokens.chunks(CHUNK).enumerate() {
        let place = |row| RowPlace { pages: &pages, position: chunk * CHUNK + row };
        let places: Vec<RowPlace> = (0..tokens.len()).map(place).collect();
        let batch = Batch { tokens, places: &places, logit_rows: &rows[..tokens.len()] };
        write(out, model.forward(&mut kv, &batch, &mut NoTaps)?)?;
    }
    Ok(())
}
