//! What a mask costs: µs for each token of the sample's valid instances, under their schemas.
//! `REFRAIN_SMOLLM2=<file> cargo run --release -p grammar --example mask_cost`.

#[path = "../tests/sample/mod.rs"]
mod sample;

use std::time::Instant;

fn main() {
    let (Some(cases), Some(tokenizer)) = (sample::cases(), sample::tokenizer()) else {
        println!("not run: no data");
        return;
    };
    let started = Instant::now();
    let vocabulary = sample::vocabulary(&tokenizer);
    println!("vocabulary: {} tokens in {:?}", vocabulary.size(), started.elapsed());
    let (mut masks, mut advances, mut compiles) = (Vec::new(), Vec::new(), Vec::new());
    for case in &cases {
        let started = Instant::now();
        let constraint = sample::compile(&case.schema, &vocabulary);
        compiles.push(started.elapsed().as_secs_f64() * 1e6);
        let Ok(constraint) = constraint else { continue };
        for (instance, _) in case.instances.iter().filter(|(_, is_valid)| *is_valid) {
            let mut constraint = constraint.clone();
            let text = instance.to_string();
            for id in tokenizer.encode_plain(&text, false).expect("encodes").ids {
                let started = Instant::now();
                let Ok(allowed) = constraint.allowed() else { break };
                masks.push(started.elapsed().as_secs_f64() * 1e6);
                if !allowed.has(id) {
                    break;
                }
                let started = Instant::now();
                let advanced = constraint.advance(id);
                advances.push(started.elapsed().as_secs_f64() * 1e6);
                if advanced.is_err() {
                    break;
                }
            }
        }
    }
    print("a mask", &mut masks);
    print("a token taken", &mut advances);
    print("a schema compiled", &mut compiles);
}

fn print(what: &str, micros: &mut [f64]) {
    micros.sort_by(f64::total_cmp);
    let at = |share: f64| micros[((micros.len() - 1) as f64 * share) as usize];
    let (median, most) = (at(0.5), at(1.0));
    let high = at(0.99);
    println!("{what}: median {median:.1} µs, 99th percentile {high:.0} µs, most {most:.0} µs");
    println!("  over {}", micros.len());
}
