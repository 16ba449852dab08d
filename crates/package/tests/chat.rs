//! Chat templates: what well-known ones must render, where each text came from, and that no
//! template does harm.

use package::{ChatError, ChatRequest, ChatTemplate, Rendered, Span};
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use std::path::Path;

const CHATML: &str = "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + \
    message['content'] + '<|im_end|>' + '\n'}}{% endfor %}\
    {% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

fn template(source: &str) -> ChatTemplate {
    ChatTemplate::new(source, "<s>", "</s>").expect("compiles")
}

fn render(template: &ChatTemplate, messages: &[Value]) -> Result<Rendered, ChatError> {
    render_with(template, messages, &Map::new())
}

fn render_with(
    template: &ChatTemplate,
    messages: &[Value],
    variables: &Map<String, Value>,
) -> Result<Rendered, ChatError> {
    template.render(&ChatRequest {
        messages,
        tools: variables.get("tools"),
        add_generation_prompt: variables
            .get("add_generation_prompt")
            .is_some_and(|value| value.as_bool() == Some(true)),
        date: Some("2025-07-10"),
        variables,
    })
}

/// Every span holds just the part of its message that it claims.
fn check_spans(rendered: &Rendered, messages: &[Value]) {
    let mut end = 0;
    for Span { range, message, role, start_char } in &rendered.spans {
        assert!(range.start >= end && range.end > range.start, "spans overlap");
        end = range.end;
        let message = &messages[*message];
        let content = match &message["content"] {
            Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
            content => content.as_str().unwrap_or_default().to_owned(),
        };
        let part = &rendered.text[range.clone()];
        let count = part.chars().count();
        let own: String = content.chars().skip(*start_char).take(count).collect();
        assert_eq!(part, own);
        assert_eq!(message["role"].as_str().unwrap_or_default(), role);
    }
}

/// The cases of huggingface.js's test suite.
#[test]
fn well_known_templates_render_exactly() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let path = root.join("../shared/data/templates/cases.json");
    let Ok(text) = std::fs::read_to_string(path) else {
        println!("not run: no data");
        return;
    };
    let cases: Vec<Value> = serde_json::from_str(&text).expect("the cases");
    assert_eq!(cases.len(), 42);
    let mut failed = Vec::new();
    for case in &cases {
        let source = case["chat_template"].as_str().expect("a template");
        let target = case["target"].as_str().expect("a target");
        let Some(data) = case["data"].as_object() else {
            // The target is the same template in another layout: both must render the same.
            let messages = [json!({"role": "user", "content": "What is 1 + 1?"})];
            let text = |source| render(&template(source), &messages).expect("renders").text;
            assert_eq!(text(source), text(target));
            continue;
        };
        let special = |name: &str| data.get(name).and_then(Value::as_str).unwrap_or_default();
        let template = ChatTemplate::new(source, special("bos_token"), special("eos_token"))
            .expect("compiles");
        let messages = data["messages"].as_array().expect("messages");
        match render_with(&template, messages, data) {
            Ok(rendered) if rendered.text == target => {
                check_spans(&rendered, messages);
                println!("{}: {} spans of {}", case["name"], rendered.spans.len(), messages.len());
            }
            Ok(rendered) => failed.push(format!(
                "{}\n--- rendered\n{}\n--- expected\n{target}",
                case["name"], rendered.text
            )),
            Err(error) => failed.push(format!("{}: {error}", case["name"])),
        }
    }
    assert!(failed.is_empty(), "{} failed:\n{}", failed.len(), failed.join("\n"));
}

#[test]
fn smollm2s_template_says_where_everything_came_from() {
    let messages = [
        json!({"role": "system", "content": "Be brief. 今天"}),
        json!({"role": "user", "content": "user"}),
        json!({"role": "assistant", "content": ""}),
        json!({"role": "user", "content": " a\n"}),
    ];
    let rendered = render(&template(CHATML), &messages).expect("renders");
    assert_eq!(
        rendered.text,
        "<|im_start|>system\nBe brief. 今天<|im_end|>\n<|im_start|>user\nuser<|im_end|>\n\
         <|im_start|>assistant\n<|im_end|>\n<|im_start|>user\n a\n<|im_end|>\n"
    );
    check_spans(&rendered, &messages);
    let messages_found: Vec<usize> = rendered.spans.iter().map(|span| span.message).collect();
    assert_eq!(messages_found, [0, 1, 3]);
}

#[test]
fn trimmed_content_is_found_with_its_offset() {
    let source = "{% for m in messages %}[{{ m.role }}: {{ m.content | trim }} ]{% endfor %}";
    let messages = [
        json!({"role": "user", "content": "\n\u{3000} é b \n"}),
        json!({"role": "user", "content": " \n"}),
        json!({"role": "user", "content": "user"}),
    ];
    let rendered = render(&template(source), &messages).expect("renders");
    assert_eq!(rendered.text, "[user: é b ][user:  ][user: user ]");
    check_spans(&rendered, &messages);
    assert_eq!(rendered.spans.len(), 2);
    assert_eq!((rendered.spans[0].start_char, rendered.spans[1].message), (3, 2));
}

/// A template that drops a message, or changes it, does not lead to a wrong span.
#[test]
fn what_is_not_sure_is_the_templates() {
    let source = "role: user {% for m in messages %}{% if m.role != 'system' %}<{{ m.content \
        .split('</think>')[-1] if '</think>' in m.content else m.content | upper }}>{% endif %}\
        {% endfor %}";
    let messages = [
        json!({"role": "system", "content": "user"}),
        json!({"role": "user", "content": "loud"}),
        json!({"role": "user", "content": "12"}),
        json!({"role": "assistant", "content": "let me see</think>four"}),
    ];
    let rendered = render(&template(source), &messages).expect("renders");
    assert_eq!(rendered.text, "role: user <LOUD><12><four>");
    check_spans(&rendered, &messages);
    let found: Vec<(usize, usize)> =
        rendered.spans.iter().map(|span| (span.message, span.start_char)).collect();
    assert_eq!(found, [(2, 0), (3, 18)]);
}

#[test]
fn content_is_taken_as_text_or_as_parts() {
    let parts = json!([{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]);
    let messages = [json!({"role": "user", "content": parts})];
    let text = render(&template(CHATML), &messages).expect("renders");
    assert_eq!(text.text, "<|im_start|>user\none\ntwo<|im_end|>\n");
    check_spans(&text, &messages);
    assert_eq!(text.spans.iter().map(|span| span.start_char).collect::<Vec<_>>(), [0, 3]);

    let wants_parts = "{% for m in messages %}{% for part in m.content %}{{ part.text }};\
        {% endfor %}{% endfor %}";
    let as_parts = |messages: &[Value]| render(&template(wants_parts), messages).expect("renders");
    assert_eq!(as_parts(&messages).text, "one;two;");
    let plain = [json!({"role": "user", "content": "only"})];
    assert_eq!(as_parts(&plain).text, "only;");
    check_spans(&as_parts(&plain), &plain);

    let image = [json!({"role": "user", "content": [{"type": "image_url", "image_url": {}}]})];
    let error = render(&template(CHATML), &image).expect_err("refused").to_string();
    assert!(error.contains("messages[0].content") && error.contains("image_url"), "{error}");
}

#[test]
fn arguments_become_a_map_where_the_template_takes_one() {
    let call = json!({"function": {"name": "f", "arguments": "{\"b\": 1,\"a\":\"<é>\"}"}});
    let messages = [json!({"role": "assistant", "content": null, "tool_calls": [call]})];
    let map = "{% for c in messages[0].tool_calls %}{{ c.function.arguments | tojson }}\
        {{ c.function.arguments.items() | list | length }}{% endfor %}";
    let text = "{{ 'f: ' + messages[0].tool_calls[0].function.arguments }}";
    let rendered = |source| render(&template(source), &messages).expect("renders").text;
    assert_eq!(rendered(map), r#"{"b": 1, "a": "<é>"}2"#);
    assert_eq!(rendered(text), "f: {\"b\": 1,\"a\":\"<é>\"}");
}

/// OpenAI's clients send null, or nothing, as the content of a message that only calls tools.
#[test]
fn null_content_is_an_empty_text_where_the_template_needs_one() {
    let calls = json!([{"id": "c", "type": "function",
        "function": {"name": "f", "arguments": "{\"a\": 1}"}}]);
    let conversation = |answer: Value| {
        [json!({"role": "user", "content": "hi"}), answer, json!({"role": "user", "content": "so"})]
    };
    let null = conversation(json!({"role": "assistant", "content": null, "tool_calls": calls}));
    let absent = conversation(json!({"role": "assistant", "tool_calls": calls}));
    let prints = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}";
    let expected = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<|im_end|>\n\
        <|im_start|>user\nso<|im_end|>\n";
    for messages in [&null, &absent] {
        let concatenated = render(&template(CHATML), messages).expect("renders");
        assert_eq!(concatenated.text, expected);
        check_spans(&concatenated, messages);
        assert_eq!(concatenated.spans.len(), 2);
        let printed = render(&template(prints), messages).expect("renders");
        assert_eq!(printed.text, "<user>hi<assistant><user>so");
        check_spans(&printed, messages);
        assert_eq!(printed.spans.len(), 2);
    }
    let parts = "{% for m in messages %}{% for part in m.content %}{{ part.text }};\
        {% endfor %}{% endfor %}";
    assert_eq!(render(&template(parts), &null).expect("renders").text, "hi;so;");

    let distinguishes = "{% for m in messages %}{% if m.content is none %}calls\
        {% else %}[{{ m.content + '' }}]{% endif %}{% endfor %}";
    assert_eq!(render(&template(distinguishes), &null).expect("renders").text, "[hi]calls[so]");
    let with_calls = "{% for m in messages %}{% if m.tool_calls and m.content is none %}calls\
        {% else %}[{{ m.content + '' }}]{% endif %}{% endfor %}";
    assert_eq!(render(&template(with_calls), &null).expect("renders").text, "[hi]calls[so]");
    let silent = conversation(json!({"role": "assistant", "content": null}));
    assert_eq!(render(&template(with_calls), &silent).expect("renders").text, "[hi][][so]");
}

#[test]
fn whether_a_template_reads_tools_is_known() {
    let reads = [
        "{{ tools | tojson }}",
        "{% if custom is defined %}{% set tools = custom %}{% endif %}\
         {% if not tools is defined %}{% set tools = none %}{% endif %}\
         {% if tools %}{{ tools | tojson }}{% endif %}",
        "{% set tools = tools or [] %}{{ tools | length }}",
    ];
    for source in reads {
        assert!(template(source).uses_tools(), "{source}");
    }
    let written = "{# tools #}tools {{ messages[0].tools }}{% set tools = [] %}{{ tools }}";
    for source in [CHATML, written] {
        assert!(!template(source).uses_tools(), "{source}");
    }
}

#[test]
fn the_date_is_pinned() {
    let source = "{{ strftime_now('%d %B %Y, %Y-%m-%d %H:%M:%S') }}";
    let template = template(source);
    let text = |date| {
        let variables = Map::new();
        let request = ChatRequest {
            messages: &[],
            tools: None,
            add_generation_prompt: false,
            date: Some(date),
            variables: &variables,
        };
        template.render(&request).map(|rendered| rendered.text)
    };
    assert_eq!(text("2024-07-26").expect("renders"), "26 July 2024, 2024-07-26 00:00:00");
    assert_eq!(text("2024-07-26T10:11:12").expect("renders"), "26 July 2024, 2024-07-26 10:11:12");
    assert!(matches!(text("yesterday"), Err(ChatError::Date(_))));
}

#[test]
fn generation_blocks_and_exceptions() {
    let source = "{%- for m in messages %}\n    {%- if m.role == 'assistant' %}\n        \
        {%- generation %}\n<{{ m.content }}>\n        {%- endgeneration %}\n    {%- elif m.role == \
        'bad' %}{{ raise_exception('no ' + m.role) }}\n    {%- endif %}\n{%- endfor %}";
    let rendered = render(&template(source), &[json!({"role": "assistant", "content": "x"})]);
    assert_eq!(rendered.expect("renders").text, "<x>");
    let refused = render(&template(source), &[json!({"role": "bad", "content": "x"})]);
    assert!(matches!(refused, Err(ChatError::Refused(problem)) if problem == "no bad"));
}

/// Each of these would take seconds, gigabytes or the stack if it were let.
#[test]
fn bombs_are_stopped() {
    let bombs = [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}\
         {% endfor %}{% endfor %}{% endfor %}",
        "{% set ns = namespace(s='xxxxxxxxxxxxxxxx') %}{% for i in range(60) %}\
         {% set ns.s = ns.s + ns.s %}{% endfor %}{{ ns.s }}",
        "{{ 'x' * 99999999999 }}",
        "{{ ('x' * 1000000).replace('x', 'y' * 1000000) }}",
        "{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}",
        "{{ strftime_now('%999999999d') }}",
        "{{ range(99999999) | list | tojson }}",
        "{{ [1] * 9999999999 }}",
        "{% set ns = namespace(v=[]) %}{% for i in range(900000) %}{% set ns.v = [ns.v] %}\
         {% endfor %}{{ ns.v | tojson }}",
        "{% set ns = namespace(v=[]) %}{% for i in range(1000) %}{% for j in range(900) %}\
         {% set ns.v = [ns.v] %}{% endfor %}{% endfor %}{{ ns.v | tojson }}",
        "{% set ns = namespace(v=[]) %}{% for i in range(120) %}{% for j in range(900) %}\
         {% set ns.v = [ns.v] %}{% endfor %}{% endfor %}{{ ns.v | tojson }}",
        "{% set ns = namespace(v=[]) %}{% for i in range(100) %}{% for j in range(900) %}\
         {% set ns.v = [ns.v] %}{% endfor %}{% endfor %}{{ ns.v }}",
        "{% set ns = namespace(v=[]) %}{% for i in range(1000) %}{% for j in range(900) %}\
         {% set ns.v = [ns.v] %}{% endfor %}{% endfor %}{{ ns.v }}",
        "{% set ns = namespace(v=[]) %}{% for i in range(1000) %}{% for j in range(900) %}\
         {% set ns.v = [ns.v] %}{% endfor %}{% endfor %}",
        "{% set ns = namespace(v=[]) %}{% for i in range(100) %}{% for j in range(900) %}\
         {% set ns.v = [ns.v] %}{% endfor %}{% endfor %}{{ ns.v | tojson(indent=9) }}",
        "{{ 'a' | indent(width=99999999999) }}{{ messages | tojson(indent=99999999999) }}",
        "{{ '%99999999999d' | format(1) }}{{ '{:>99999999999}'.format(1) }}",
    ];
    for bomb in bombs {
        let start = std::time::Instant::now();
        let template = ChatTemplate::new(bomb, "", "");
        let result = template.and_then(|template| render(&template, &[]));
        let seconds = start.elapsed().as_secs_f64();
        println!("{seconds:.3} s: {bomb:.50} {:?}", result.as_ref().map(|r| r.text.len()));
        assert!(seconds < 5.0, "{bomb} took {seconds} s");
        assert!(result.is_err() || result.is_ok_and(|rendered| rendered.text.len() < 1 << 20));
    }
    let nested = format!("{}x{}", "{{ (".repeat(9000), ") }}".repeat(9000));
    assert!(matches!(ChatTemplate::new(&nested, "", ""), Err(ChatError::Syntax(_))));
    let long = "x".repeat(package::TEMPLATE_BYTES_MAX + 1);
    assert!(matches!(ChatTemplate::new(&long, "", ""), Err(ChatError::SourceTooLong { .. })));
}

/// Values that share their parts: small to keep, and endless to read.
#[test]
fn what_doubles_is_stopped() {
    let doubled = [
        ("['a']", "ns.x + ns.x"),
        ("['a']", "ns.x * 2"),
        ("['a']", "[ns.x, ns.x]"),
        ("['a']", "(ns.x, ns.x)"),
        ("('a',)", "ns.x + ns.x"),
        ("{'a': 1}", "{'a': ns.x, 'b': ns.x}"),
        ("{'a': 1}", "dict(a=ns.x, b=ns.x)"),
        ("['a']", "ns.x | chain(ns.x)"),
        ("['a']", "(ns.x + ns.x)[0:]"),
        ("['a']", "(ns.x + ns.x)[::-1]"),
        ("['a']", "(ns.x + ns.x) | list"),
        ("['a']", "(ns.x + ns.x) | map('upper')"),
        ("['a']", "ns.x | zip(ns.x)"),
    ];
    let uses = ["", "{{ ns.x | tojson }}{{ ns }}"];
    let messages = [json!({"role": "user", "content": "Hi"})];
    for (start, step) in doubled {
        for use_ in uses {
            let bomb = format!(
                "{{% set ns = namespace(x={start}) %}}{{% for i in range(60) %}}\
                 {{% set ns.x = {step} %}}{{% endfor %}}{use_}"
            );
            let begin = std::time::Instant::now();
            let template = ChatTemplate::new(&bomb, "", "").expect("it can be opened");
            let opened = begin.elapsed().as_secs_f64();
            let result = render(&template, &messages);
            let seconds = begin.elapsed().as_secs_f64();
            println!("{opened:.2} s, {seconds:.2} s: {step} {use_}");
            assert!(matches!(result, Err(ChatError::Limit(_))), "{bomb}: {result:?}");
            assert!(opened < 10.0 && seconds < 20.0, "{bomb}: {seconds} s");
        }
    }
    let cycle = "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns | tojson }}{{ ns }}";
    let template = ChatTemplate::new(cycle, "", "").expect("it can be opened");
    assert!(render(&template, &messages).is_err());
}

/// Pieces of templates, put together at random.
fn any_source() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        ".{0,10}",
        prop::sample::select(vec![
            "{% for m in messages %}",
            "{% endfor %}",
            "{{ m.content }}",
            "{{ m['role'] | trim }}",
            "{% if m.content %}",
            "{% else %}",
            "{% endif %}",
            "{% set x = messages[0] %}",
            "{{ x | tojson(indent=2) }}",
            "{%- generation -%}",
            "{% endgeneration %}",
            "{{ messages | length * 3 }}",
            "{{ messages[::-1] }}",
            "{{ x.items() }}",
            "{{ raise_exception('no') }}",
            "{{ strftime_now('%Y') }}",
            "{% macro f(a) %}",
            "{% endmacro %}",
            "{{ f(messages) }}",
            "{{ f(f) }}",
            "{# c #}",
            "{{",
            "}}",
            "{%",
            "%}",
            "{{ m.content.split('a')[-1] }}",
            "{% break %}",
            "{{ 'a' ~ range(9) }}",
            "{{- bos_token -}}",
        ])
        .prop_map(str::to_owned),
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

fn any_messages() -> impl Strategy<Value = Vec<Value>> {
    let content = prop_oneof![
        any::<String>().prop_map(Value::from),
        "[ \n]{0,3}[a-b]{0,3}[ \n]{0,3}".prop_map(Value::from),
        Just(Value::Null),
        prop::collection::vec("[a-c ]{0,3}", 0..3).prop_map(|texts| {
            texts.into_iter().map(|text| json!({"type": "text", "text": text})).collect()
        }),
    ];
    let role = prop::sample::select(vec!["system", "user", "assistant", "tool"]);
    let message =
        (role, content).prop_map(|(role, content)| json!({"role": role, "content": content}));
    let odd = prop_oneof![Just(Value::Null), Just(json!(["content"])), Just(json!({"role": 1}))];
    prop::collection::vec(prop_oneof![9 => message, 1 => odd], 0..5)
}

proptest! {
    #[test]
    fn no_template_does_harm(source in any_source(), messages in any_messages()) {
        let Ok(template) = ChatTemplate::new(&source, "<s>", "</s>") else { return Ok(()) };
        if let Ok(rendered) = render(&template, &messages) {
            check_spans(&rendered, &messages);
        }
    }

    /// Where a template only trims, every text that is not blank is found.
    #[test]
    fn every_message_is_found(messages in any_messages(), trims in any::<bool>()) {
        let source = "{% for m in messages %}<{{ m.role }}>\n{{ m.content }}\n{% endfor %}";
        let source = match trims {
            true => source.replace("m.content", "m.content | trim"),
            false => source.to_owned(),
        };
        let is_text = |message: &Value| message["content"].is_string();
        let messages: Vec<Value> = messages.into_iter().filter(is_text).collect();
        let rendered = render(&template(&source), &messages).expect("renders");
        check_spans(&rendered, &messages);
        let visible = |message: &&Value| {
            !message["content"].as_str().unwrap_or_default().trim().is_empty()
        };
        prop_assert_eq!(rendered.spans.len(), messages.iter().filter(visible).count());
    }
}
