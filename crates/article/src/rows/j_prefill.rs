//! Prefill and the KV cache.

use kernels::{KvGeometry, KvType, PAGE_TOKENS};

use crate::live::steps;
use crate::row::Check::{Live, Model, Read};
use crate::row::letters::{C, D, R, S};
use crate::row::{Row, row};
use crate::subject::Subject;
use crate::tally::{Seen, Tally};

pub(super) const ROWS: &[Row] = &[
    row(106, &[S], "prefill is the first pass, over the whole prompt", Live(steps::prefill)),
    row(107, &[C], "it leaves K and V of 6 layers", Model(six_pairs)),
    row(108, &[C], "each K and each V is (1, 12, 4, 64)", Model(shapes)),
    row(109, &[D], "the axes: batch, heads, tokens, width", Read),
    row(110, &[C], "6 x 12 = 72 K and 72 V, each with its own numbers", Model(seventy_two)),
    row(111, &[R], "K and V are kept, queries are not", Model(no_queries)),
    row(112, &[C], "9216 numbers and 36864 bytes for each token", Model(bytes)),
];

fn six_pairs(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let story = subject.story()?;
    let kv = &story.kv[0];
    tally.equal("layers", &6, &kv.layers)?;
    let lengths: Vec<usize> = (0..6).map(|layer| kv.length(layer)).collect();
    tally.equal("positions in each", &[4; 6][..], &lengths[..])?;
    Ok("6 pairs, of 4 positions".to_owned())
}

fn shapes(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let (story, trace) = (subject.story()?, subject.trace()?);
    let kv = &story.kv[0];
    for layer in 0..kv.layers {
        let found = [1, kv.heads, kv.length(layer), kv.width];
        tally.equal(format!("layer {layer}"), &[1, 12, 4, 64], &found)?;
    }
    tally.equal("K, as traced", &[1, 12, 4, 64], &trace.kv.k_shape)?;
    tally.equal("V, as traced", &[1, 12, 4, 64], &trace.kv.v_shape)?;
    Ok(format!("{:?} twice, in {} layers", trace.kv.k_shape, kv.layers))
}

fn seventy_two(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let story = subject.story()?;
    let kv = &story.kv[0];
    let mut all = Vec::new();
    for (layer, head) in (0..kv.layers).flat_map(|l| (0..kv.heads).map(move |h| (l, h))) {
        let (keys, values) = (kv.keys(layer, head, 0..4), kv.values(layer, head, 0..4));
        for (what, numbers) in [("K", keys), ("V", values)] {
            let there = numbers.len() == 4 * 64 && numbers.iter().any(|number| *number != 0.0);
            tally.holds(
                format!("{what} of layer {layer}, head {head}"),
                "256 numbers",
                there,
                "none",
            )?;
            let bits: Vec<u32> = numbers.iter().map(|number| number.to_bits()).collect();
            all.push(bits);
        }
    }
    let count = all.len();
    all.sort_unstable();
    all.dedup();
    tally.equal("K and V that differ from each other", &144, &all.len())?;
    Ok(format!("{} K and {} V, no two the same", count / 2, count / 2))
}

fn no_queries(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let (story, trace) = (subject.story()?, subject.trace()?);
    let (kv, tokens) = (&story.kv[0], subject.prompt.len());
    let numbers = 2 * kv.layers * kv.heads * kv.width;
    let expected = numbers * kv.number_bytes;
    tally.equal("bytes of a token", &expected, &trace.kv.bytes_per_token)?;
    // What is written in the cache's memory is as much as K and V are; a query more is too much.
    let written = subject.written_numbers()?;
    let (least, most) = (numbers * tokens * 9 / 10, numbers * tokens);
    let fits = (least..=most).contains(&written);
    tally.holds("numbers written to its memory", format!("{most}"), fits, written)?;
    Ok(format!("{written} numbers written: K and V of {tokens} tokens"))
}

fn bytes(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let (story, trace) = (subject.story()?, subject.trace()?);
    let kv = &story.kv[0];
    let numbers = 2 * kv.layers * kv.heads * kv.width;
    tally.equal("numbers of a token", &9216, &numbers)?;
    let geometry = subject.model.kv_geometry();
    for (kv_type, expected) in [(KvType::F32, 36_864), (KvType::F16, 18_432)] {
        let page = KvGeometry { kv_type, ..geometry }.page_bytes();
        tally.equal(
            format!("bytes of a token in {kv_type:?}"),
            &expected,
            &(page / PAGE_TOKENS),
        )?;
    }
    if kv.number_bytes == 4 {
        tally.equal("bytes of the prompt, as traced", &147_456, &trace.kv.bytes)?;
    }
    let of = |tokens: usize| numbers * 4 * tokens;
    tally.equal("bytes of 5 tokens", &184_320, &of(5))?;
    tally.equal("bytes of 1024 tokens", &(36 << 20), &of(1024))?;
    Ok("4 tokens 147456 B, 5 184320 B, 1024 36 MiB in f32".to_owned())
}
