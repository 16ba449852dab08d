//! Tokenizers against Hugging Face's library, the article's numbers, and themselves.
//!
//! The GPT-2 vocabulary is looked for in the directory that `REFRAIN_GPT2_VOCAB` names, SmolLM2's
//! GGUF file where `REFRAIN_SMOLLM2` does.

use package::FileBytes;
use package::gguf::GgufFile;
use package::{StreamDecoder, Tokenizer, TokenizerError};
use proptest::prelude::*;
use serde_json::Value;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

/// A path that the environment names. `cargo xtask test` always names the vocabulary, and sets
/// `CI` there: then its absence is a failure.
fn named(variable: &str) -> Option<PathBuf> {
    let path = std::env::var_os(variable).map(PathBuf::from);
    if path.is_none() {
        println!("not run: no data ({variable} is not set)");
    }
    path
}

static GPT2: LazyLock<Option<Tokenizer>> = LazyLock::new(|| {
    let directory = named("REFRAIN_GPT2_VOCAB");
    assert!(
        directory.is_some() || std::env::var_os("CI").is_none(),
        "REFRAIN_GPT2_VOCAB must be set in CI"
    );
    directory.map(|path| Tokenizer::from_directory(&path).expect("the GPT-2 vocabulary loads"))
});

static SMOLLM2: LazyLock<Option<Tokenizer>> = LazyLock::new(|| {
    let bytes = FileBytes::map(&named("REFRAIN_SMOLLM2")?).expect("the model opens");
    let file = GgufFile::parse(Arc::new(bytes)).expect("the model is sound");
    Some(Tokenizer::from_gguf(file.metadata()).expect("its tokenizer loads"))
});

fn ids(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
    tokenizer.encode(text, true).expect("encodes").ids
}

/// The article's rows 18 to 28, 142 and 144.
#[test]
fn gpt2_gives_the_articles_tokens() {
    let Some(gpt2) = GPT2.as_ref() else { return };
    assert_eq!(gpt2.vocab_size(), 50_257);
    let prompt = ids(gpt2, "The cat sat on");
    assert_eq!(prompt, [464, 3797, 3332, 319]);
    let texts: Vec<String> = prompt.iter().map(|id| gpt2.display(*id)).collect();
    assert_eq!(texts, ["The", " cat", " sat", " on"]);
    assert_eq!(ids(gpt2, "The cat sat on the"), [464, 3797, 3332, 319, 262]);
    assert_eq!(gpt2.id_of(" the"), Some(262));
    assert_eq!(ids(gpt2, "The cat  sat on"), [464, 3797, 220, 3332, 319]);
    assert_eq!(ids(gpt2, "The cat sat on "), [464, 3797, 3332, 319, 220]);
    let chinese = ids(gpt2, "今天天气怎么样？");
    let expected =
        [20015, 232, 25465, 25465, 36365, 242, 45250, 236, 20046, 230, 43718, 115, 171, 120, 253];
    assert_eq!(chinese, expected);
    assert_eq!(gpt2.display(20015), "\\xe4\\xbb");

    let at = |second| {
        let start = "You are a helpful assistant.\nCurrent time: 2026-01-05 10:00:";
        ids(gpt2, &format!("{start}{second}\nTools:"))
    };
    let (first, second) = (at("01"), at("02"));
    let common = first.iter().zip(&second).take_while(|(a, b)| a == b).count();
    assert_eq!((first.len(), common), (24, 20));
    assert_eq!((first[20], second[20]), (486, 2999));
    assert_eq!(first[21..], second[21..]);
}

#[test]
fn gpt2_ends_with_its_only_special_token() {
    let Some(gpt2) = GPT2.as_ref() else { return };
    assert_eq!(
        (gpt2.bos(), gpt2.eos(), gpt2.end_ids()),
        (Some(50_256), Some(50_256), &[50_256][..])
    );
    assert!(gpt2.is_special(50_256) && !gpt2.is_special(464) && !gpt2.adds_bos());
    let special = gpt2.encode("<|endoftext|>", false).expect("encodes").ids;
    assert_eq!(special, [50_256]);
    let plain = gpt2.encode_plain("<|endoftext|>", false).expect("encodes").ids;
    assert!(plain.len() > 1 && !plain.contains(&50_256));
    assert_eq!(gpt2.decode(&plain, false), "<|endoftext|>");
    assert_eq!(gpt2.decode(&[464, 50_256, 99_999], false), "The");
    assert_eq!(gpt2.decode(&[464, 50_256], true), "The<|endoftext|>");
    assert_eq!((gpt2.bytes(99_999), gpt2.display(99_999)), (None, "<99999>".to_owned()));
}

/// Texts and ids made by Hugging Face's `tokenizers` (`golden/make_tokens.py`).
#[test]
fn ids_equal_hugging_faces() {
    let golden: Vec<Value> =
        serde_json::from_str(include_str!("golden/tokens.json")).expect("the golden file");
    for (name, tokenizer) in [("gpt2", &*GPT2), ("smollm2", &*SMOLLM2)] {
        let Some(tokenizer) = tokenizer else { continue };
        for case in &golden {
            let text = case["text"].as_str().expect("a text");
            let expected: Vec<u64> =
                case[name].as_array().expect("ids").iter().filter_map(Value::as_u64).collect();
            let found: Vec<u64> = ids(tokenizer, text).into_iter().map(u64::from).collect();
            assert_eq!(found, expected, "{name}: {text:?}");
        }
    }
}

#[test]
fn smollm2_knows_its_special_tokens() {
    let Some(smollm2) = SMOLLM2.as_ref() else { return };
    assert_eq!((smollm2.bos(), smollm2.eos(), smollm2.adds_bos()), (Some(1), Some(2), false));
    assert_eq!((smollm2.vocab_size(), smollm2.end_ids()), (49_152, &[0, 2][..]));
    assert_eq!(ids(smollm2, "<|im_start|>user\n")[0], 1);
}

/// Bytes that SmolLM2's vocabulary lacks are dropped, as Hugging Face and llama.cpp do; the
/// offsets of the others stay right.
#[test]
fn offsets_are_right_after_bytes_that_the_vocabulary_lacks() {
    let Some(smollm2) = SMOLLM2.as_ref() else { return };
    let text = "a\u{4}b é";
    let encoding = smollm2.encode(text, false).expect("encodes");
    assert_eq!(smollm2.decode(&encoding.ids, true), "ab é");
    let parts: Vec<&str> = encoding.offsets.iter().map(|range| &text[range.clone()]).collect();
    assert_eq!(parts, ["a", "b", " é"]);
}

/// The tokenizer of [`small_json`] with every byte in its vocabulary, a normalizer and an added
/// token that is found in normalized text.
fn normalizing(normalizer: &str) -> Tokenizer {
    let mut json: Value = serde_json::from_str(&small_json("", "")).expect("valid");
    json["normalizer"] = serde_json::json!({ "type": normalizer });
    let codes = (33..=96).chain(99..=126).chain(161..=172).chain(174..=255).chain(256..=323);
    for (id, code) in (4..).zip(codes) {
        let text = char::from_u32(code).expect("a character").to_string();
        json["model"]["vocab"].as_object_mut().expect("a map").entry(text).or_insert(id.into());
    }
    let added = serde_json::json!({
        "id": 258, "content": "\u{e9}\u{1d6}", "special": false, "single_word": false,
        "lstrip": false, "rstrip": false, "normalized": true,
    });
    json["added_tokens"].as_array_mut().expect("a list").push(added);
    Tokenizer::from_json(json.to_string().as_bytes()).expect("loads")
}

static NORMALIZING: LazyLock<Vec<Tokenizer>> =
    LazyLock::new(|| ["NFC", "NFD", "NFKC", "NFKD", "Lowercase"].map(normalizing).into());

fn check_bound(tokenizer: &Tokenizer, text: &str) {
    let bound = tokenizer.tokens_at_least(text);
    for count in [tokenizer.encode(text, false), tokenizer.encode_plain(text, false)] {
        let count = count.expect("encodes").ids.len();
        assert!(count >= bound, "{text:?} has {count} tokens, fewer than {bound}");
    }
}

#[test]
fn few_bytes_of_text_make_a_token() {
    let bound = |tokenizer: &Tokenizer, text: &str| tokenizer.tokens_at_least(text);
    let small = Tokenizer::from_json(small_json("", "").as_bytes()).expect("loads");
    assert_eq!((bound(&small, "abababa"), bound(&small, "\u{4}cd\u{e9}")), (3, 0));
    let strips = small_json("", "").replace(r#""rstrip":false"#, r#""rstrip":true"#);
    let strips = strips.replace(r#""ab":2"#, r#""ab":2,"\u0120":9"#);
    let strips = Tokenizer::from_json(strips.as_bytes()).expect("loads");
    let text = format!("ab<s>{}", " ".repeat(1000));
    assert_eq!((ids(&strips, &text).len(), bound(&strips, &text)), (2, 1));
    // Characters whose normal form is far shorter.
    for (form, text) in [
        ("NFC", "\u{212a}\u{327}".repeat(50)),
        ("NFC", "u\u{308}\u{304}".repeat(50)),
        ("NFKC", "\u{1d414}\u{308}\u{304}".repeat(50)),
        ("NFKD", "\u{1d400}".repeat(50)),
        ("NFD", "\u{1fef}\u{e9}\u{1d6}".repeat(50)),
        ("Lowercase", "\u{212a}".repeat(50)),
    ] {
        let tokenizer = normalizing(form);
        check_bound(&tokenizer, &text);
        assert!(bound(&tokenizer, &text) > 0);
    }
    let lacking =
        small_json("", "").replace(r#""normalizer":null"#, r#""normalizer":{"type":"NFC"}"#);
    let lacking = Tokenizer::from_json(lacking.as_bytes()).expect("loads");
    assert_eq!(bound(&lacking, "ab"), 0);
    if let Some(gpt2) = GPT2.as_ref() {
        assert_eq!(bound(gpt2, &"x".repeat(1_000_000)), 1_000_000_usize.div_ceil(128));
    }
}

/// A text with tokens of every kind in it, whole and cut short.
fn marked_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        any_text(),
        "[ \\n]{0,3}",
        "<\\|(im_start|im_end|endoftext)\\|>",
        "[<|>]{1,3}",
        "<\\|im_[a-z]{0,5}\\|?>?",
        Just("<s>".to_owned()),
        Just("<repo_name>".to_owned()),
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn parts_encode_to_the_whole(text in marked_text()) {
        let all = GPT2.iter().chain(SMOLLM2.iter()).chain(NORMALIZING.iter());
        for tokenizer in all {
            let parts = tokenizer.parts(&text);
            prop_assert_eq!(parts.concat(), text.as_str());
            let mut ids = Vec::new();
            for part in &parts {
                ids.extend(tokenizer.encode(part, false).expect("encodes").ids);
            }
            prop_assert_eq!(ids, tokenizer.encode(&text, false).expect("encodes").ids);
        }
    }

    #[test]
    fn no_text_has_fewer_tokens_than_the_bound(
        text in any_text(),
        letters in "[aue\u{301}\u{308}\u{304}\u{e9}\u{1d6}\u{212a}\u{1d400}<s> ]{0,30}",
    ) {
        for text in [&text, &letters] {
            GPT2.iter().chain(SMOLLM2.iter()).for_each(|tokenizer| check_bound(tokenizer, text));
            NORMALIZING.iter().for_each(|tokenizer| check_bound(tokenizer, text));
        }
    }

    #[test]
    fn the_tokens_bytes_are_the_text(text in any_text()) {
        let Some(gpt2) = GPT2.as_ref() else { return Ok(()) };
        for plain in [false, true] {
            let encode = if plain { Tokenizer::encode_plain } else { Tokenizer::encode };
            let encoding = encode(gpt2, &text, true).expect("encodes");
            let mut bytes = Vec::new();
            for (id, range) in encoding.ids.iter().zip(&encoding.offsets) {
                let token = gpt2.bytes(*id).expect("every id has bytes");
                prop_assert_eq!(&text.as_bytes()[range.clone()], token);
                bytes.extend_from_slice(token);
                prop_assert!(!plain || !gpt2.is_special(*id));
            }
            prop_assert_eq!(&bytes, text.as_bytes());
            prop_assert_eq!(gpt2.decode(&encoding.ids, true), text.as_str());
        }
    }

    #[test]
    fn streamed_tokens_join_to_the_text(text in any_text()) {
        let Some(gpt2) = GPT2.as_ref() else { return Ok(()) };
        let mut decoder = StreamDecoder::new();
        let mut joined = String::new();
        for id in ids(gpt2, &text) {
            joined += &decoder.push(gpt2.bytes(id).expect("every id has bytes"));
        }
        joined += &decoder.finish();
        prop_assert_eq!(joined, text);
    }

    #[test]
    fn damaged_tokenizer_files_are_refused(text in ".{0,200}", cut in 0usize..2000) {
        prop_assert!(Tokenizer::from_json(text.as_bytes()).is_err());
        let whole = small_json("", "");
        let cut = cut % whole.len();
        prop_assert!(Tokenizer::from_json(&whole.as_bytes()[..cut]).is_err());
    }

    /// Whatever is changed, the file is refused or works; nothing panics.
    #[test]
    fn changed_tokenizer_files_do_no_harm(
        at in any::<prop::sample::Index>(),
        length in 0usize..12,
        with in r#"[a-z0-9\[\]{}:,"<>]{0,12}"#,
        text in any_text(),
    ) {
        let mut json = small_json("", "");
        let start = at.index(json.len());
        json.replace_range(start..(start + length).min(json.len()), &with);
        if let Ok(tokenizer) = Tokenizer::from_json(json.as_bytes()) {
            let encoding = tokenizer.encode(&text, true).expect("encodes");
            prop_assert_eq!(encoding.ids.len(), encoding.offsets.len());
        }
    }
}

/// Any text, with special tokens, runs of white space and several scripts in it.
fn any_text() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        any::<String>(),
        "[ \t\r\n]{0,12}",
        "[a-z']{1,8}",
        "[0-9]{1,9}",
        "[今天气怎么样あ한é😀👩\u{200d}\u{301}]{1,6}",
        Just("<|endoftext|>".to_owned()),
        Just("<|endof".to_owned()),
    ];
    prop::collection::vec(part, 0..8).prop_map(|parts| parts.concat())
}

/// A tokenizer of four tokens, `a`, `b`, `ab` and the special `<s>`.
fn small_json(post_processor: &str, model: &str) -> String {
    let post_processor = if post_processor.is_empty() { "null" } else { post_processor };
    format!(
        r#"{{"version":"1.0","added_tokens":[{{"id":3,"content":"<s>","special":true,
        "single_word":false,"lstrip":false,"rstrip":false,"normalized":false}}],
        "normalizer":null,"pre_tokenizer":{{"type":"ByteLevel","add_prefix_space":false,
        "trim_offsets":false}},"post_processor":{post_processor},"decoder":null,
        "model":{{"type":"BPE",{model}"vocab":{{"a":0,"b":1,"ab":2,"<s>":3}},
        "merges":["a b"]}}}}"#
    )
}

#[test]
fn bos_comes_once() {
    let processor = r#"{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>",
        "type_id":0}},{"Sequence":{"id":"A","type_id":0}}],"pair":[],
        "special_tokens":{"<s>":{"id":"<s>","ids":[3],"tokens":["<s>"]}}}"#;
    let json = small_json(processor, "");
    let tokenizer = Tokenizer::from_json(json.as_bytes()).expect("loads");
    assert!(tokenizer.adds_bos());
    let added = tokenizer.encode("ab", true).expect("encodes");
    assert_eq!((added.ids, added.offsets), (vec![3, 2], vec![0..0, 0..2]));
    assert_eq!(ids(&tokenizer, "<s>ab"), [3, 2]);
    assert_eq!(tokenizer.encode("ab", false).expect("encodes").ids, [2]);
}

#[test]
fn other_tokenizers_are_refused_by_name() {
    let refused =
        |json: &str| Tokenizer::from_json(json.as_bytes()).expect_err("refused").to_string();
    let random = refused(&small_json("", r#""dropout":0.1,"#));
    assert!(random.contains("dropout"), "{random}");
    let words = r#"{"version":"1.0","added_tokens":[],"normalizer":null,"pre_tokenizer":null,
        "post_processor":null,"decoder":null,
        "model":{"type":"WordLevel","vocab":{"a":0},"unk_token":"a"}}"#;
    assert!(refused(words).contains("WordLevel"));
    let metaspace = small_json("", "").replace(
        r#"{"type":"ByteLevel","add_prefix_space":false,
        "trim_offsets":false}"#,
        r#"{"type":"Metaspace","replacement":"_","prepend_scheme":"always","split":true}"#,
    );
    assert!(refused(&metaspace).contains("Metaspace"));
    let long_merge = small_json("", "").replace(r#""a b""#, r#""ab ab""#);
    assert!(refused(&long_merge).contains("abab"));
    let huge = small_json("", "").replace(r#""ab":2"#, r#""ab":4000000000"#);
    assert!(refused(&huge).contains("4000000000"));
    for value in ["\"\"", "1", "[]", "null"] {
        assert!(refused(value).contains("no object"), "{value}");
    }
}

#[test]
fn a_text_over_the_limit_is_refused() {
    let tokenizer = Tokenizer::from_json(small_json("", "").as_bytes()).expect("loads");
    let text = "a".repeat(package::TEXT_BYTES_MAX + 1);
    assert!(matches!(tokenizer.encode(&text, true), Err(TokenizerError::TextTooLong { .. })));
}

#[test]
fn a_directory_without_a_tokenizer_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let error = Tokenizer::from_directory(directory.path()).expect_err("refused").to_string();
    assert!(error.contains("no tokenizer in"), "{error}");
    std::fs::write(directory.path().join("tokenizer.json"), "{").expect("writes");
    assert!(Tokenizer::from_directory(directory.path()).is_err());
}
