"""The command line: schemas, exit codes, and a reader that goes away."""

import json
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


def test_bench_names_its_tests_as_llama_bench_does(default_model):
    report = document("bench", "smollm2", "-p", "32", "-n", "4", "-t", "2")
    assert report["schema"] == "refrain.bench/1"
    by_name = {result["test"]: result for result in report["results"]}
    assert set(by_name) >= {"pp32", "tg4"}
    for result in by_name.values():
        speed = result["tokens_per_s"]
        assert 0 < speed["min"] <= speed["median"] <= speed["max"]
        assert result["threads"] == 2


def test_check_exact_holds_on_a_small_model(gpt2):
    assert command("check", "exact", str(gpt2)).stdout


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
