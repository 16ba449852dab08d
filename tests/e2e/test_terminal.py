"""The command line: schemas, exit codes, and a reader that goes away."""

import json
import os
import subprocess

import pytest

from harness import BINARY, command, document

RUN = {
    "schema",
    "model",
    "text",
    "token_ids",
    "prompt_tokens",
    "reused_tokens",
    "completion_tokens",
    "finish_reason",
    "timings",
}
TIMINGS = {
    "load_ms",
    "prefill_ms",
    "decode_ms",
    "ttft_ms",
    "prefill_tokens_per_s",
    "decode_tokens_per_s",
}


def test_run_answers_and_reports(default_model):
    greedy = ["-p", "What is 2+2?", "--temperature", "0"]
    report = document("run", "smollm2", *greedy, "--max-tokens", "24")
    assert report["schema"] == "refrain.run/1"
    assert set(report) >= RUN
    assert set(report["timings"]) >= TIMINGS
    assert "4" in report["text"]
    assert report["finish_reason"] == "stop"
    assert report["completion_tokens"] == len(report["token_ids"]) + 1, "the end token counts"


def test_run_raw_leaves_the_template_out(default_model):
    options = ["-p", "The capital of France is", "--temperature", "0", "--max-tokens", "2"]
    raw = document("run", "smollm2", *options, "--raw")
    assert raw["text"].startswith(" Paris")
    assert raw["prompt_tokens"] == 5
    assert document("run", "smollm2", *options)["prompt_tokens"] > 5


def test_run_prints_the_answer_alone_on_stdout(default_model):
    options = ["-p", "The capital of France is", "--temperature", "0", "--max-tokens", "1"]
    assert command("run", "smollm2", *options, "--raw").stdout.strip() == "Paris"


def test_tokenize_gives_ids_texts_and_bytes(default_model):
    text = "Hi 你好 😀"
    report = document("tokenize", "smollm2", text)
    assert report["schema"] == "refrain.tokenize/1"
    assert report["ids"] == [token["id"] for token in report["tokens"]]
    joined = b"".join(bytes(token["bytes"]) for token in report["tokens"])
    assert joined.decode() == text


SYSTEM = "You are a helpful agent.\nCurrent time: 10:00:01\nTools: none. Be brief."


def chat(system: str, *turns: str) -> dict:
    said = [{"role": ["user", "assistant"][i % 2], "content": turn} for i, turn in enumerate(turns)]
    return {"messages": [{"role": "system", "content": system}, *said]}


def why(folder, first, second, *options: str) -> dict:
    """The document of `refrain why` for two bodies, or for two texts."""
    paths = []
    for name, request in [("a", first), ("b", second)]:
        text = request if isinstance(request, str) else json.dumps(request)
        paths.append(folder / (name + (".txt" if request is text else ".json")))
        paths[-1].write_text(text, encoding="utf-8")
    files = ["--prompt", str(paths[0]), "--against", str(paths[1])]
    return document("why", "smollm2", *files, *options)


def test_why_names_what_changed(default_model, tmp_path):
    changed = SYSTEM.replace(":01", ":02")
    report = why(tmp_path, chat(SYSTEM, "Why?"), chat(changed, "Why?"))
    assert report["schema"] == "refrain.why/1"
    seen, stop = report["verdict"], report["verdict"]["stop"]
    assert stop["reason"] == "different_token"
    assert (stop["cached"]["text"], stop["request"]["text"]) == ("1", "2")
    start, end = stop["chars"]
    assert (stop["message"], stop["role"], changed[start:end]) == (0, "system", "2")
    assert seen["reused_tokens"] + seen["computed_tokens"] == seen["prompt_tokens"]
    assert seen["compared_with"].endswith("a.json")
    assert (stop["cached_text"], stop["request_text"]) == ("10:00:01", "10:00:02")
    assert (stop["kind"], report["hint"]) == ("time", "number")
    assert (seen["hint"], seen["advice"]) == (report["hint"], report["advice"])


def test_why_agrees_with_the_server(server, tmp_path):
    pairs = [
        (chat(SYSTEM, "Why?"), chat(SYSTEM, "Why?")),
        (chat(SYSTEM, "Why?"), chat(SYSTEM, "Why not?")),
        (chat(SYSTEM, "Why?"), chat(SYSTEM, "Why?", "So.", "Oh.")),
        ({"prompt": "Once upon a time"}, {"prompt": "Once upon  a time"}),
    ]
    with server.http() as http:
        for index, pair in enumerate(pairs):
            path = "/v1/completions" if "prompt" in pair[0] else "/v1/chat/completions"
            options = {"max_tokens": 1, "cache_salt": f"why {index}"}
            answers = [http.post(path, json=body | options).json() for body in pair]
            expected = answers[1]["refrain"]["verdict"]
            assert expected["compared_with"] == answers[0]["id"]
            found = why(tmp_path, *pair)["verdict"]
            assert found | {"compared_with": ""} == expected | {"compared_with": ""}


def test_why_refuses_what_the_server_refuses_in_the_same_words(server, tmp_path):
    long = chat("word " * 8_192, "Why?")
    with server.http() as http:
        said = http.post("/v1/chat/completions", json=long).json()["error"]["message"]
    files = []
    for name, body in [("a", chat(SYSTEM, "Why?")), ("b", long)]:
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(body), encoding="utf-8")
        files.append(str(path))
    arguments = ["why", "smollm2", "--prompt", files[0], "--against", files[1]]
    error = command(*arguments, check=1).stderr
    assert "maximum context length is 8192" in said and said in error, (said, error)


def test_why_reads_other_bodies_and_texts(default_model, tmp_path):
    anthropic = {
        "system": [{"type": "text", "text": SYSTEM, "cache_control": {"type": "ephemeral"}}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Why?"}]}],
    }
    report = why(tmp_path, anthropic, chat(SYSTEM, "Why?"))
    assert report["prompt"]["read_as"] == "anthropic_messages"
    assert report["verdict"]["stop"]["reason"] == "end_of_prompt"
    response = {"instructions": SYSTEM, "input": [{"role": "user", "content": "Why?"}]}
    report = why(tmp_path, response, chat(SYSTEM, "Why?"))
    assert report["prompt"]["read_as"] == "openai_response"
    assert report["verdict"]["stop"]["reason"] == "end_of_prompt"
    report = why(tmp_path, "Once upon a time", "Once upon a time there was")
    assert report["against"]["read_as"] == "text"
    assert report["verdict"]["stop"]["reason"] == "end_of_cached"


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({"input": "Hi", "previous_response_id": "resp_1"}, "only its server has"),
        ({"input": [{"type": "mcp_call"}]}, "'input[0]' has type"),
        ({"messages": None}, "'messages' is missing"),
        ({"messages": [{"role": "assistant", "tool_calls": [{}]}]}, "tool_calls[0].function'"),
        ({"messages": [{"role": "user", "content": "Hi"}], "tool_choice": 5}, '"required"'),
        (
            {"messages": [{"role": "assistant", "content": [{"type": "thinking"}]}]},
            "'messages[0].content' holds only thinking",
        ),
    ],
)
def test_why_says_what_is_wrong_with_a_body(default_model, tmp_path, body, problem):
    file = tmp_path / "body.json"
    file.write_text(json.dumps(body), encoding="utf-8")
    error = command("why", "--prompt", str(file), "--against", str(file), check=1).stderr
    assert problem in error


def test_why_reads_behind_a_mark_and_says_that_salts_differ(default_model, tmp_path):
    for name, mark in [("a", "utf-8"), ("b", "utf-8-sig")]:
        body = {"messages": [{"role": "user", "content": "Hi"}], "cache_salt": name}
        (tmp_path / f"{name}.json").write_text(json.dumps(body), encoding=mark)
    first, second = str(tmp_path / "a.json"), str(tmp_path / "b.json")
    salts = "nothing is shared between salts"
    assert salts in command("why", "--prompt", first, "--against", second).stdout
    assert salts not in command("why", "--prompt", second, "--against", second).stdout


def test_why_prints_for_people(default_model, tmp_path):
    why(tmp_path, chat(SYSTEM, "Why?"), chat(SYSTEM.replace(":01", ":02"), "Why?"))
    files = ["--prompt", str(tmp_path / "a.json"), "--against", str(tmp_path / "b.json")]
    utf8 = os.environ | {"LC_ALL": "C.UTF-8"}
    lines = command("why", "smollm2", *files, env=utf8).stdout.splitlines()
    labels = [line[:9].strip() for line in lines]
    assert labels == ["reused", "stopped", "where", "", "lost", "hint", "note"]
    assert "10:00:0[1→2]⏎Tools" in lines[3]
    assert all(len(line) <= 80 for line in lines), lines
    other = {"prompt": "Once upon a time"}
    (tmp_path / "c.json").write_text(json.dumps(other), encoding="utf-8")
    apart = ["--prompt", files[1], "--against", str(tmp_path / "c.json")]
    said = command("why", "smollm2", *apart, env=utf8).stdout
    assert "first_request at 0   nothing in common with what is held" in said
    (tmp_path / "a.json").write_text("{}", encoding="utf-8")
    said = command("why", "smollm2", *files, check=1).stderr
    assert "a.json" in said and "messages" in said


def test_why_says_what_to_do_without_a_chat_template(gpt2, tmp_path):
    path = tmp_path / "a.json"
    path.write_text(json.dumps(chat(SYSTEM, "Why?")), encoding="utf-8")
    said = command("why", str(gpt2), "--prompt", str(path), "--against", str(path), check=1).stderr
    for way in ['{"prompt": ...}', "plain text", "a model with a template"]:
        assert way in said, said


def test_info_says_what_is_there_and_what_it_takes(default_model, gpt2):
    report = document("info", "smollm2")
    assert report["schema"] == "refrain.info/1"
    config = report["config"]
    assert (config["architecture"], config["layers"], config["kv_heads"]) == ("llama", 30, 3)
    assert config["tied_head"] is True and report["chat_template"] is True
    assert report["license"] == "apache-2.0"
    total = report["totals"]["all"]
    assert total["tensors"] == len(report["tensors"]) == 272
    assert total["bytes"] == sum(tensor["bytes"] for tensor in report["tensors"])
    assert sum(kind["bytes"] for kind in report["totals"]["by_type"].values()) == total["bytes"]
    numbers = 2 * config["layers"] * config["kv_heads"] * config["head_dim"]
    assert report["memory"]["kv_bytes_per_token"] == 2 * numbers, "K and V are f16"
    # The weights are packed as they are, but for norms and padding.
    assert abs(report["memory"]["weights_bytes"] / total["bytes"] - 1) < 0.02
    assert "<|im_end|>" in [token["text"] for token in report["tokenizer"]["ends"]]
    small = document("info", str(gpt2))
    assert small["config"]["norm_epsilon"] == 1e-5 and small["license"] is None
    assert small["chat_template"] is False and small["memory"]["kv_type"] == "f32"
    said = command("info", str(gpt2)).stdout
    assert "wte.weight" in said and "[50257, 32]" in said and "not open code" in said


def test_bench_names_its_tests_as_llama_bench_does(default_model):
    report = document("bench", "smollm2", "-p", "32", "-n", "4", "-t", "2")
    assert report["schema"] == "refrain.bench/1"
    by_name = {result["test"]: result for result in report["results"]}
    assert set(by_name) >= {"pp32", "tg4"}
    for result in by_name.values():
        speed = result["value"]
        assert result["unit"] == "tok/s"
        assert 0 < speed["min"] <= speed["median"] <= speed["max"]
        assert result["threads"] == 2


def test_bench_decodes_sequences_together_and_asks_as_several_clients(default_model):
    words = ["bench", "smollm2", "-p", "0", "-n", "4", "-s", "1,3", "-r", "1", "-t", "2"]
    report = document(*words, "--clients", "2")
    by_name = {result["test"]: result for result in report["results"]}
    assert list(by_name) == ["tg4", "tg4x3", "clients2-cold", "clients2-warm"]
    assert by_name["tg4x3"]["unit"] == "tok/s"
    cold, warm = (by_name[f"clients2-{state}"] for state in ("cold", "warm"))
    assert cold["unit"] == warm["unit"] == "ms"
    assert 0 < warm["value"]["median"] < cold["value"]["median"], "the system prompt is held"


def test_bench_measures_what_answers_notice_of_a_long_prompt(default_model):
    rates = document("bench", "-p", "0", "-n", "0", "--busy", "900", "-r", "1")["results"]
    units = {"step": "ms", "p50": "steps", "p99": "steps", "first": "ms", "late": "ms"}
    assert {rate["test"]: rate["unit"] for rate in rates} == {
        f"busy900-{what}": unit for what, unit in units.items()
    }
    values = {rate["test"].removeprefix("busy900-"): rate["value"]["median"] for rate in rates}
    assert 0 < values["p50"] <= values["p99"]
    assert values["late"] < values["first"]


def test_check_exact_holds_on_a_small_model(gpt2):
    shown = command("check", "exact", str(gpt2)).stdout
    assert "  f32 " in shown and "  q8_0 " in shown, "both types of K and V"


def test_kv_in_q8_0(gpt2):
    words = ["run", str(gpt2), "--raw", "-p", "Hi", "--max-tokens", "3", "--temperature", "0"]
    answer = json.loads(command(*words, "--kv-type", "q8_0", "--json").stdout)
    assert answer["completion_tokens"] == 3
    said = command(*words, "--kv-type", "q4_0", check=2).stderr
    assert "--kv-type" in said and "q8_0" in said


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["run", "/nowhere/model.gguf", "-p", "Hi"], 1),
        (["tokenize", "no-such-alias", "Hi"], 1),
        (["run", "--no-such-flag"], 2),
        (["no-such-command"], 2),
        ([], 2),
    ],
)
def test_errors_have_their_exit_code_and_plain_words(arguments, status):
    done = command(*arguments, check=status)
    assert done.stdout == ""
    said = done.stderr.lower()
    assert said and "panicked" not in said and "backtrace" not in said
    if status == 1:
        assert len(done.stderr.strip().splitlines()) <= 2, done.stderr


def test_a_broken_file_is_a_plain_error(tmp_path):
    for name, content in [("short.gguf", b"GG"), ("wrong.gguf", b"nope" * 100)]:
        (tmp_path / name).write_bytes(content)
        done = command("run", str(tmp_path / name), "-p", "Hi", check=1)
        assert name in done.stderr
    (tmp_path / "config.json").write_text("{}")
    command("run", str(tmp_path), "-p", "Hi", check=1)


def test_a_reader_that_goes_away_ends_it_quietly(gpt2):
    text = " ".join(str(number) for number in range(20_000))
    with subprocess.Popen(
        [BINARY, "tokenize", str(gpt2), text, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=60) == 0


def test_pull_is_quick_when_the_model_is_there(default_model):
    assert json.loads(command("pull", "smollm2", "--json").stdout)["model"] == "smollm2"
