//! Files that are damaged or crafted: each gives a plain error, never a panic.

use crate::tiny::{
    GgufWriter, gpt2_config, gpt2_tensors, llama_gguf, parse_gguf, safetensors, stored,
};
use package::gguf::{GgufError, GgufFile};
use package::{Config, Package, Part, Suffix, Weights};
use proptest::prelude::{ProptestConfig, any, prop, proptest};
use std::fs;

fn refusal(writer: &GgufWriter) -> String {
    writer.parse().expect_err("must be refused").to_string()
}

/// Everything that a parsed file can be asked.
fn walk(file: GgufFile) {
    let metadata = file.metadata();
    for key in metadata.keys() {
        let _ = (metadata.string(key), metadata.u64(key), metadata.f32(key), metadata.bool(key));
        let _ = (metadata.strings(key), metadata.integers(key), metadata.f32s(key));
    }
    assert!(file.tensors().all(|tensor| !tensor.bytes.is_empty()));
    if let Ok(config) = Config::from_gguf(&file)
        && let Ok(weights) = Weights::from_gguf(file, &config)
    {
        let _ = (weights.matrix(Part::Head), weights.vector(Part::FinalNorm, Suffix::Weight));
    }
}

#[test]
fn a_sound_gguf_file_reads_back() {
    let file = llama_gguf().parse().expect("a sound file");
    let metadata = file.metadata();
    assert_eq!(metadata.u32("llama.embedding_length"), Ok(Some(8)));
    assert_eq!(metadata.string("general.architecture"), Ok(Some("llama")));
    let tokens = metadata.strings("tokenizer.ggml.tokens").expect("strings").expect("there");
    assert_eq!((tokens.len(), tokens[9]), (10, "j"));
    assert_eq!(metadata.string("nothing"), Ok(None));
    assert!(matches!(metadata.string("llama.block_count"), Err(GgufError::WrongType { .. })));
    let up = file.tensor("blk.0.ffn_up.weight").expect("supported").expect("there");
    assert_eq!((up.shape.as_slice(), up.bytes.len()), (&[12, 8][..], 12 * 8 * 4));
    assert_eq!(up.bytes[..4], 900.0_f32.to_le_bytes());
    assert!(matches!(file.tensor("nothing"), Ok(None)));
}

#[test]
fn every_truncation_of_a_gguf_file_is_refused() {
    let bytes = llama_gguf().build();
    for length in 0..bytes.len() {
        assert!(parse_gguf(bytes[..length].to_vec()).is_err(), "{length} of {}", bytes.len());
    }
    assert!(parse_gguf(bytes).is_ok());
}

#[test]
fn gguf_claims_beyond_the_limits_are_refused() {
    let mut bytes = llama_gguf().build();
    for (offset, what) in [(8, "tensors"), (16, "metadata")] {
        let saved = bytes[offset..offset + 8].to_vec();
        bytes[offset..offset + 8].copy_from_slice(&u64::MAX.to_le_bytes());
        let error = parse_gguf(bytes.clone()).expect_err("must be refused").to_string();
        assert!(error.contains(what) && error.contains("limit"), "{error}");
        bytes[offset..offset + 8].copy_from_slice(&saved);
    }
    let long_array = [4_u32.to_le_bytes().to_vec(), u64::MAX.to_le_bytes().to_vec()].concat();
    assert!(refusal(&llama_gguf().raw("x", 9, long_array)).contains("limit"));
    let false_array = [4_u32.to_le_bytes().to_vec(), 1_000_000_u64.to_le_bytes().to_vec()].concat();
    assert!(refusal(&llama_gguf().raw("x", 9, false_array)).contains("truncated"));
    let nested = [9_u32.to_le_bytes().to_vec(), 1_u64.to_le_bytes().to_vec()].concat();
    assert!(refusal(&llama_gguf().raw("x", 9, nested)).contains("not supported"));
    assert!(refusal(&llama_gguf().raw("x", 99, Vec::new())).contains("99"));
    assert!(refusal(&llama_gguf().raw("x", 8, u64::MAX.to_le_bytes().to_vec())).contains("limit"));
}

#[test]
fn gguf_heads_that_cannot_be_are_refused() {
    let mut wrong = llama_gguf().build();
    wrong[..4].copy_from_slice(b"ggjt");
    assert!(matches!(parse_gguf(wrong), Err(GgufError::WrongMagic { .. })));
    assert!(matches!(parse_gguf(Vec::new()), Err(GgufError::WrongMagic { .. })));
    let mut writer = llama_gguf();
    writer.version = 1;
    assert_eq!(writer.parse().err(), Some(GgufError::Version(1)));
    let alignment = llama_gguf().u32("general.alignment", 48);
    assert_eq!(alignment.parse().err(), Some(GgufError::Alignment(48)));
    let mut twice = llama_gguf();
    twice.entries.push(twice.entries[0].clone());
    assert!(refusal(&twice).contains("twice"));
}

#[test]
fn gguf_tensors_that_cannot_be_are_refused() {
    let change = |change: &dyn Fn(&mut crate::tiny::GgufTensor)| {
        let mut writer = llama_gguf();
        change(&mut writer.tensors[3]);
        let message = refusal(&writer);
        assert!(message.contains("attn_q"), "{message}");
        message
    };
    assert!(change(&|tensor| tensor.offset = Some(0)).contains("overlaps"));
    assert!(change(&|tensor| tensor.offset = Some(33)).contains("aligned"));
    assert!(change(&|tensor| tensor.offset = Some(u64::MAX - 31)).contains("past the end"));
    assert!(change(&|tensor| tensor.offset = Some(1 << 40)).contains("past the end"));
    assert!(change(&|tensor| tensor.dimensions = vec![1 << 40, 1 << 40]).contains("too large"));
    assert!(change(&|tensor| tensor.dimensions = vec![1 << 40]).contains("past the end"));
    assert!(change(&|tensor| tensor.dimensions = vec![8, 0]).contains("dimension of 0"));
    assert!(change(&|tensor| tensor.dimensions = vec![]).contains("0 dimensions"));
    assert!(change(&|tensor| tensor.dimensions = vec![1; 5]).contains("5 dimensions"));
    assert!(change(&|tensor| tensor.kind = 77).contains("77"));
    assert!(change(&|tensor| tensor.kind = 8).contains("whole blocks"));
    let mut twice = llama_gguf();
    twice.tensors[3].name = "output_norm.weight".to_owned();
    assert!(refusal(&twice).contains("twice"));
}

#[test]
fn an_element_type_that_is_not_supported_is_named() {
    let mut writer = llama_gguf();
    let tensor = &mut writer.tensors[3];
    // Q2_K: blocks of 256 in 84 bytes.
    (tensor.dimensions, tensor.kind, tensor.data) = (vec![256], 10, vec![0; 84]);
    let file = writer.parse().expect("a sound file");
    let error = file.tensor("blk.0.attn_q.weight").expect_err("not supported").to_string();
    assert!(error.contains("Q2_K"), "{error}");
}

#[test]
fn safetensors_that_cannot_be_are_refused() {
    let config = gpt2_config();
    let open = |bytes: Vec<u8>| Weights::from_safetensors_bytes(bytes, &config).map(drop);
    let bytes = safetensors(&gpt2_tensors("transformer."));
    for length in 0..bytes.len() {
        assert!(open(bytes[..length].to_vec()).is_err(), "{length} of {}", bytes.len());
    }
    assert!(open(bytes.clone()).is_ok());
    let mut long_header = bytes.clone();
    long_header[..8].copy_from_slice(&u64::MAX.to_le_bytes());
    assert!(open(long_header).is_err());
    let patch = |from: &str, to: &str| {
        assert_eq!(from.len(), to.len());
        let mut patched = bytes.clone();
        let place = patched.windows(from.len()).position(|window| window == from.as_bytes());
        let place = place.expect("the header says so");
        patched[place..place + from.len()].copy_from_slice(to.as_bytes());
        open(patched).expect_err("must be refused").to_string()
    };
    // The embedding's bytes are 0 to 320; the positions' begin there.
    patch("[320,832]", "[316,828]");
    patch("[0,320]", "[0,324]");
    patch("\"shape\":[10,8]", "\"shape\":[99,8]");
    patch("\"shape\":[10,8]", "\"shape\":[-1,8]");
    let wrong = [stored("wte.weight", &[10, 8], 0.0)];
    assert!(open(safetensors(&wrong)).expect_err("incomplete").to_string().contains("wpe"));
}

#[test]
fn directories_and_files_that_are_no_models_are_refused() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let open = |name: &str| {
        let error = Package::open(&directory.path().join(name)).expect_err("must be refused");
        error.to_string()
    };
    assert!(open("nowhere").contains("does not exist"));
    assert!(open("").contains("config.json"));
    fs::write(directory.path().join("x.gguf"), b"PK\x03\x04 not a model").expect("written");
    assert!(open("x.gguf").contains("not a GGUF file"));
    fs::write(directory.path().join("empty.gguf"), b"").expect("written");
    assert!(open("empty.gguf").contains("not a GGUF file"));
    fs::write(directory.path().join("config.json"), crate::tiny::GPT2_JSON).expect("written");
    assert!(open("").contains("model.safetensors"));
    fs::write(directory.path().join("pytorch_model.bin"), b"").expect("written");
    assert!(open("").contains("save_pretrained"));
    let index = directory.path().join("model.safetensors.index.json");
    for (text, named) in [
        ("{}", "weight_map"),
        (r#"{"weight_map": {"a": "../x.safetensors"}}"#, "not a file name"),
        (r#"{"weight_map": {"a": 1}}"#, "not a string"),
        (r#"{"weight_map": {"a": "gone.safetensors"}}"#, "gone.safetensors"),
    ] {
        fs::write(&index, text).expect("written");
        let message = open("");
        assert!(message.contains(named), "{text}: {message}");
    }
}

#[test]
fn sharded_weights_are_one_model() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let tensors = gpt2_tensors("transformer.");
    let mut weight_map = serde_json::Map::new();
    for (number, shard) in tensors.chunks(5).enumerate() {
        let name = format!("model-{number}.safetensors");
        fs::write(directory.path().join(&name), safetensors(shard)).expect("written");
        shard
            .iter()
            .for_each(|(tensor, ..)| drop(weight_map.insert(tensor.clone(), name.clone().into())));
    }
    let index = serde_json::json!({"metadata": {}, "weight_map": weight_map}).to_string();
    let index_path = directory.path().join("model.safetensors.index.json");
    fs::write(&index_path, index).expect("written");
    let weights = Weights::from_safetensors(directory.path(), &gpt2_config()).expect("sound");
    assert_eq!(weights.tensors().count(), tensors.len() - 1, "all but the mask");
    weight_map.insert("extra".to_owned(), "model-0.safetensors".into());
    let index = serde_json::json!({"weight_map": weight_map}).to_string();
    fs::write(&index_path, index).expect("written");
    let error = Weights::from_safetensors(directory.path(), &gpt2_config()).expect_err("missing");
    assert!(error.to_string().contains("extra"), "{error}");
}

/// Replaces bytes of `file` at fractions of its head, where the structure is.
fn mutate(mut file: Vec<u8>, head: usize, changes: &[(u16, u8)]) -> Vec<u8> {
    for (place, value) in changes {
        let place = usize::from(*place) * head / (usize::from(u16::MAX) + 1);
        file[place] = *value;
    }
    file
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn a_mutated_gguf_file_never_panics(
        changes in prop::collection::vec(any::<(u16, u8)>(), 1..6),
        cut in any::<Option<u16>>(),
    ) {
        let file = llama_gguf().build();
        let mut file = mutate(file, 1500, &changes);
        if let Some(cut) = cut {
            file.truncate(usize::from(cut));
        }
        if let Ok(file) = parse_gguf(file) {
            walk(file);
        }
    }

    #[test]
    fn a_gguf_length_overwritten_never_panics(place in 0_usize..1500, value in any::<u64>()) {
        let mut file = llama_gguf().build();
        // Small, huge, and near a power of two: where sums and products overflow.
        for value in [value, value >> 40, value | 1 << 63, u64::MAX - (value >> 56)] {
            file[place..place + 8].copy_from_slice(&value.to_le_bytes());
            if let Ok(file) = parse_gguf(file.clone()) {
                walk(file);
            }
        }
    }

    #[test]
    fn a_mutated_safetensors_file_never_panics(
        changes in prop::collection::vec(any::<(u16, u8)>(), 1..6),
        cut in any::<Option<u16>>(),
    ) {
        let config = gpt2_config();
        let mut file = mutate(safetensors(&gpt2_tensors("transformer.")), 1500, &changes);
        if let Some(cut) = cut {
            file.truncate(usize::from(cut));
        }
        if let Ok(weights) = Weights::from_safetensors_bytes(file, &config) {
            assert!(weights.matrix(Part::Head).is_ok());
        }
    }

    #[test]
    fn a_mutated_config_never_panics(changes in prop::collection::vec(any::<(u16, u8)>(), 1..4)) {
        for text in [crate::tiny::GPT2_JSON.to_owned(), crate::tiny::llama_json("")] {
            let length = text.len();
            let mutated = mutate(text.into_bytes(), length, &changes);
            let _ = Config::from_json(&String::from_utf8_lossy(&mutated));
        }
    }
}
