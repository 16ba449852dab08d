//! Opening whole packages of both formats.

use crate::tiny::{GPT2_JSON, GgufWriter, gpt2_tensors, llama_gguf, safetensors};
use package::{Architecture, Package};
use std::fs;
use std::path::Path;

/// The tiny Llama with a tokenizer of ten letters.
fn with_tokenizer() -> GgufWriter {
    llama_gguf()
        .text("tokenizer.ggml.model", "gpt2")
        .text("tokenizer.ggml.pre", "gpt-2")
        .strings("tokenizer.ggml.merges", &[])
}

fn open_gguf(writer: &GgufWriter) -> Result<Package, String> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("Tiny.F32.gguf");
    fs::write(&path, writer.build()).expect("written");
    Package::open(&path).map_err(|error| error.to_string())
}

fn write_directory(directory: &Path, vocabulary: &[&str]) {
    let vocabulary: serde_json::Map<_, _> =
        vocabulary.iter().enumerate().map(|(id, token)| ((*token).to_owned(), id.into())).collect();
    let vocabulary = serde_json::Value::from(vocabulary).to_string();
    let readme = "---\nlicense: apache-2.0\ntags:\n- tiny\n---\n# Tiny\n";
    let weights = safetensors(&gpt2_tensors("transformer."));
    for (name, contents) in [
        ("config.json", GPT2_JSON.as_bytes()),
        ("model.safetensors", &weights),
        ("vocab.json", vocabulary.as_bytes()),
        ("merges.txt", b"#version: 0.2\n"),
        ("README.md", readme.as_bytes()),
    ] {
        fs::write(directory.join(name), contents).expect("written");
    }
}

#[test]
fn a_gguf_file_is_a_package() {
    let package = open_gguf(&with_tokenizer()).expect("a sound package");
    assert_eq!(package.name, "Tiny.F32");
    assert_eq!(package.license.as_deref(), Some("apache-2.0"));
    assert_eq!(package.config.architecture, Architecture::Llama);
    assert_eq!(package.tokenizer.encode("cab", false).expect("short").ids, [2, 0, 1]);
}

#[test]
fn a_directory_is_a_package() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    write_directory(directory.path(), &["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"]);
    let package = Package::open(directory.path()).expect("a sound package");
    assert_eq!(Some(package.name.as_str()), directory.path().file_name().and_then(|n| n.to_str()));
    assert_eq!(package.license.as_deref(), Some("apache-2.0"));
    assert_eq!(package.tokenizer.decode(&[9, 0], true), "ja");
}

#[test]
fn a_package_without_a_tokenizer_is_refused() {
    let message = open_gguf(&llama_gguf()).expect_err("no tokenizer.ggml.model");
    assert!(message.contains("tokenizer"), "{message}");
    let directory = tempfile::tempdir().expect("a temporary directory");
    write_directory(directory.path(), &["a"]);
    fs::remove_file(directory.path().join("vocab.json")).expect("removed");
    let message = Package::open(directory.path()).expect_err("no vocab.json").to_string();
    assert!(message.contains("tokenizer"), "{message}");
}

#[test]
fn a_tokenizer_beyond_the_vocabulary_is_refused() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let eleven = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k"];
    write_directory(directory.path(), &eleven);
    let message = Package::open(directory.path()).expect_err("an id too many").to_string();
    assert!(message.contains("11") && message.contains("contradicts"), "{message}");
}

#[test]
fn the_default_model_opens_where_it_has_been_pulled() {
    let models = package::Sources::from_environment().and_then(|sources| sources.models());
    let stored =
        models.expect("a readable cache").into_iter().find(|model| model.name == "smollm2");
    let Some(stored) = stored else {
        println!("not run: no data (pull smollm2 first)");
        return;
    };
    let package = Package::open(&stored.path).expect("a sound package");
    let config = package.config;
    assert_eq!((config.layers, config.hidden, config.heads, config.kv_heads), (30, 576, 9, 3));
    assert_eq!((config.vocab, config.context, config.tied_head), (49152, 8192, true));
    assert_eq!(package.license.as_deref(), Some("apache-2.0"));
    assert_eq!(package.weights.tensors().count(), 272);
}

fn rendered(template: Option<&package::ChatTemplate>) -> String {
    let messages = [serde_json::json!({"role": "user", "content": "ab"})];
    let variables = serde_json::Map::new();
    let request = package::ChatRequest {
        messages: &messages,
        tools: None,
        add_generation_prompt: false,
        date: None,
        variables: &variables,
    };
    template.expect("a template").render(&request).expect("it renders").text
}

#[test]
fn the_chat_template_is_found_wherever_it_is_kept() {
    let own = "own:{{ messages[0].content }}";
    let package = open_gguf(&with_tokenizer().text("tokenizer.chat_template", own));
    assert_eq!(rendered(package.expect("sound").chat_template.as_ref()), "own:ab");
    assert!(open_gguf(&with_tokenizer()).expect("sound").chat_template.is_none());

    let directory = tempfile::tempdir().expect("a temporary directory");
    let letters = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
    write_directory(directory.path(), &letters);
    let open = || Package::open_text(directory.path()).expect("a sound package").chat_template;
    assert!(open().is_none());
    let config = directory.path().join("tokenizer_config.json");
    let one = serde_json::json!({"chat_template": "one:{{ messages[0].content }}"});
    fs::write(&config, one.to_string()).expect("written");
    assert_eq!(rendered(open().as_ref()), "one:ab");
    let several = serde_json::json!({"chat_template": [
        {"name": "tool_use", "template": "tools"},
        {"name": "default", "template": "named:{{ messages[0].content }}"},
    ]});
    fs::write(&config, several.to_string()).expect("written");
    assert_eq!(rendered(open().as_ref()), "named:ab");
    fs::write(directory.path().join("chat_template.jinja"), own).expect("written");
    assert_eq!(rendered(open().as_ref()), "own:ab");
    assert!(Package::open(directory.path()).expect("sound").chat_template.is_some());
}

#[test]
fn text_alone_needs_no_weights() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    write_directory(directory.path(), &["a", "b"]);
    let open = || Package::open_text(directory.path()).expect("tokenizer and template");
    assert!(open().context.is_some());
    for name in ["config.json", "model.safetensors"] {
        fs::remove_file(directory.path().join(name)).expect("removed");
    }
    let text = open();
    assert_eq!(text.context, None);
    assert_eq!(text.tokenizer.encode("ab", false).expect("short").ids, [0, 1]);
    let message = Package::open_text(&directory.path().join("gone")).expect_err("not there");
    assert!(message.to_string().contains("does not exist"), "{message}");
}

#[test]
fn a_broken_chat_template_is_refused() {
    let broken = with_tokenizer().text("tokenizer.chat_template", "{% for %}");
    let message = open_gguf(&broken).expect_err("no valid template");
    assert!(message.contains("chat template"), "{message}");
}
