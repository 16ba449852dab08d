//! Weights by their part, in every naming and layout, and files that contradict the configuration.

use crate::tiny::{
    Stored, gpt2_config, gpt2_tensors, llama_gguf, llama_json, llama_tensors, safetensors, stored,
};
use package::{Config, LayerPart, Part, RowOrder, Suffix, Weights, WeightsError};

fn gpt2(tensors: &[Stored]) -> Result<Weights, WeightsError> {
    Weights::from_safetensors_bytes(safetensors(tensors), &gpt2_config())
}

fn llama(extra: &str, tensors: &[Stored]) -> Result<Weights, WeightsError> {
    let config = Config::from_json(&llama_json(extra)).expect("a sound configuration");
    Weights::from_safetensors_bytes(safetensors(tensors), &config)
}

fn first(bytes: &[u8]) -> f32 {
    f32::from_le_bytes(bytes[..4].try_into().expect("four bytes"))
}

#[test]
fn gpt2_is_found_with_and_without_prefix() {
    for prefix in ["transformer.", ""] {
        let weights = gpt2(&gpt2_tensors(prefix)).expect("sound weights");
        let up = weights.matrix(Part::Layer(0, LayerPart::Up)).expect("an MLP");
        assert_eq!((up.outputs, up.inputs, up.input_major), (20, 8, true));
        assert_eq!((first(up.tensor.bytes), up.row_order), (900.0, RowOrder::Natural));
        let positions = weights.matrix(Part::PositionEmbedding).expect("positions");
        assert_eq!((positions.outputs, positions.inputs, positions.input_major), (16, 8, false));
        let head = weights.matrix(Part::Head).expect("a tied head");
        assert_eq!((head.outputs, first(head.tensor.bytes)), (10, 0.0));
        let bias = weights.vector(Part::Layer(0, LayerPart::Qkv), Suffix::Bias);
        assert_eq!(bias.expect("a bias").map(|bias| (bias.len(), bias[0])), Some((24, 600.0)));
        assert!(weights.matrix(Part::Layer(0, LayerPart::Q)).is_err());
        assert!(weights.matrix(Part::Layer(1, LayerPart::Up)).is_err());
        assert!(weights.matrix(Part::FinalNorm).is_err());
    }
}

#[test]
fn llama_is_found_with_and_without_prefix_tied_and_untied() {
    for prefix in ["model.", ""] {
        let tied = llama(r#", "tie_word_embeddings": true"#, &llama_tensors(prefix));
        let head = tied.expect("sound weights");
        assert_eq!(first(head.matrix(Part::Head).expect("a head").tensor.bytes), 0.0);
        let mut tensors = llama_tensors(prefix);
        tensors.push(stored("lm_head.weight", &[10, 8], 5000.0));
        let untied = llama("", &tensors).expect("sound weights");
        assert_eq!(first(untied.matrix(Part::Head).expect("a head").tensor.bytes), 5000.0);
        let q = untied.matrix(Part::Layer(0, LayerPart::Q)).expect("queries");
        assert_eq!((q.input_major, q.row_order), (false, RowOrder::Natural));
        assert_eq!(untied.vector(Part::FinalNorm, Suffix::Bias).expect("no bias"), None);
    }
}

#[test]
fn biases_must_be_as_the_configuration_says() {
    let mut tensors = llama_tensors("model.");
    tensors.push(stored("lm_head.weight", &[10, 8], 0.0));
    let error = llama(r#", "attention_bias": true"#, &tensors).expect_err("no bias there");
    assert!(error.to_string().contains("q_proj.bias"), "{error}");
    for (name, length) in [("q_proj", 8), ("k_proj", 4), ("v_proj", 4), ("o_proj", 8)] {
        tensors.push(stored(&format!("model.layers.0.self_attn.{name}.bias"), &[length], 1.0));
    }
    let weights = llama(r#", "attention_bias": true"#, &tensors).expect("sound weights");
    let bias = weights.vector(Part::Layer(0, LayerPart::K), Suffix::Bias).expect("a bias");
    assert_eq!(bias, Some(vec![1.0, 2.0, 3.0, 4.0]));
    let error = llama("", &tensors).expect_err("a bias too many");
    assert!(error.to_string().contains("contradicts"), "{error}");
}

/// `LlamaModel.permute` of llama.cpp's converter: `(heads, 2, half)` becomes `(heads, half, 2)`.
#[test]
fn gguf_query_rows_are_interleaved_and_their_biases_put_right() {
    let canonical: Vec<f32> = (0..8).map(|row| row as f32).collect();
    let mut permuted = Vec::new();
    for head in canonical.chunks(4) {
        let (low, high) = head.split_at(2);
        low.iter().zip(high).for_each(|(low, high)| permuted.extend([*low, *high]));
    }
    let mut writer = llama_gguf().tensor("blk.0.attn_q.bias", &[8], 0.0);
    let bias = writer.tensors.last_mut().expect("just added");
    bias.data = permuted.iter().flat_map(|value| value.to_le_bytes()).collect();
    let file = writer.parse().expect("a sound file");
    let config = Config::from_gguf(&file).expect("a sound configuration");
    let weights = Weights::from_gguf(file, &config).expect("sound weights");
    let q = Part::Layer(0, LayerPart::Q);
    assert_eq!(weights.vector(q, Suffix::Bias).expect("a bias"), Some(canonical));
    let interleaved = RowOrder::InterleavedRope { head_dim: 4 };
    assert_eq!(weights.matrix(q).expect("queries").row_order, interleaved);
    let v = weights.matrix(Part::Layer(0, LayerPart::V)).expect("values");
    assert_eq!((v.row_order, v.outputs, v.inputs), (RowOrder::Natural, 4, 8));
    let k = Part::Layer(0, LayerPart::K);
    assert_eq!(weights.vector(k, Suffix::Bias).expect("none"), None);
}

#[test]
fn contradictions_name_the_tensor() {
    let tied = r#", "tie_word_embeddings": true"#;
    let change = |name: &str, change: &dyn Fn(&mut Vec<Stored>, usize)| {
        let mut tensors = llama_tensors("model.");
        let index = tensors.iter().position(|(n, ..)| n.contains(name)).expect("a tensor");
        change(&mut tensors, index);
        llama(tied, &tensors).expect_err("must be refused").to_string()
    };
    let missing = change("up_proj", &|tensors, i| drop(tensors.remove(i)));
    assert!(missing.contains("mlp.up_proj.weight"), "{missing}");
    let shape = change("k_proj", &|tensors, i| tensors[i] = stored(&tensors[i].0, &[8, 8], 0.0));
    assert!(shape.contains("k_proj") && shape.contains("[8, 8]"), "{shape}");
    let transposed =
        change("down_proj", &|tensors, i| tensors[i] = stored(&tensors[i].0, &[12, 8], 0.0));
    assert!(transposed.contains("down_proj"), "{transposed}");
    let dtype = change("q_proj", &|tensors, i| {
        let (name, ..) = tensors[i].clone();
        tensors[i] = (name, "F64", vec![8, 8], vec![0; 512]);
    });
    assert!(dtype.contains("q_proj") && dtype.contains("F64"), "{dtype}");
    let layers = change("q_proj", &|tensors, _| {
        tensors.push(stored("model.layers.1.input_layernorm.weight", &[8], 0.0));
    });
    assert!(layers.contains("fewer layers"), "{layers}");
    let head = change("q_proj", &|tensors, _| {
        tensors.push(stored("lm_head.weight", &[10, 8], 1.0));
    });
    assert!(head.contains("lm_head") && head.contains("tie_word_embeddings"), "{head}");
}

#[test]
fn a_tied_head_that_is_the_embedding_is_fine() {
    let mut tensors = llama_tensors("model.");
    tensors.push(stored("lm_head.weight", &[10, 8], 0.0));
    assert!(llama(r#", "tie_word_embeddings": true"#, &tensors).is_ok());
}

#[test]
fn norms_are_read_in_half_precision_too() {
    let mut tensors = llama_tensors("model.");
    let norm = tensors.iter_mut().find(|(name, ..)| name == "model.norm.weight").expect("there");
    // 1.0, -2.0, 0.5 and zeros.
    let bf16 = [0x3f80_u16, 0xc000, 0x3f00, 0, 0, 0, 0, 0];
    *norm = (norm.0.clone(), "BF16", vec![8], bf16.iter().flat_map(|b| b.to_le_bytes()).collect());
    let weights = llama(r#", "tie_word_embeddings": true"#, &tensors).expect("sound weights");
    let gain = weights.vector(Part::FinalNorm, Suffix::Weight).expect("a norm").expect("there");
    assert_eq!(gain, [1.0, -2.0, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0]);
}
