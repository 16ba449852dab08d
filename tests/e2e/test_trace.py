"""`refrain trace`: its document, its screen, and what it refuses."""

import itertools
import json
import os
import re

import pytest

from harness import columns, command, document
from models import CONTEXT, HEADS, HIDDEN, LAYERS, VOCABULARY

PROMPT = "The cat sat on"
UTF8 = {**os.environ, "LC_ALL": "C.UTF-8"}
ASCII = {**os.environ, "LC_ALL": "C"}


def screen(*arguments: str, env: dict = UTF8) -> list[str]:
    """The lines that `refrain trace` prints, none of which is too wide."""
    lines = command("trace", *arguments, env=env).stdout.splitlines()
    assert [line for line in lines if columns(line) > 80] == []
    return lines


def test_the_prompt_fits_a_screen_on_the_default_model(default_model):
    for options in ([], ["--decode", "1"]):
        lines = screen("-p", PROMPT, *options)
        assert len(lines) <= 60
    names = [found[1] for line in lines if (found := re.match(r"[ \d]\d (\w+(?: \w+)*)", line))]
    order = ["tokens", "embedding", "position", "norm", "scores", "mask", "weights", "values"]
    order += ["output", "residual", "MLP", "logits", "next", "KV cache", "decode", "prompt cache"]
    positions = [next(i for i, name in enumerate(names) if name.startswith(one)) for one in order]
    assert positions == sorted(positions), names
    text = "\n".join(lines)
    assert "no table: rope" in text
    assert "RMS norm" in text
    assert "SiLU(gate)" in text
    assert "9 heads of q share 3 of k, v" in text
    assert "█" in text
    assert "new q (1, 9, 1, 64); k, v (1, 3, 1, 64); weights (1, 9, 1, 5)" in text
    assert "token-layer evaluations: 30; without the cache 150" in text
    assert "not next-token probability" in text
    assert "3 of 4 reused" in text


NUMBERS = re.compile(r"^ *('.*') (?:q|k|v|inner|out)? +(-?\d.*) …$")
SHARE = re.compile(r"^ *('.*') +(-?\d\S+)  (\d\.\d{4}) +(-?\d\S+)")


def numbers_of(lines: list[str], step: str) -> list[tuple[str, list[float]]]:
    """The token and the numbers of each line of numbers below the first step of this name."""
    start = next(i for i, line in enumerate(lines) if re.match(rf" ?\d+ {step} ", line))
    below = itertools.takewhile(lambda line: line.startswith("  "), lines[start + 1 :])
    found = [NUMBERS.match(line) for line in below]
    return [(one[1], [float(number) for number in one[2].split()]) for one in found if one]


@pytest.mark.parametrize("options", [[], ["--query", "1", "--head", "4", "--layer", "2"]])
def test_the_numbers_of_a_layer_are_one_tokens_and_can_be_followed(default_model, options):
    lines = screen("-p", PROMPT, *options)
    token = "' cat'" if options else "' on'"
    assert all(NUMBERS.match(line) for line in lines if line.endswith(" …")), lines
    assert numbers_of(lines, "embedding")[0][0] == "'The'"
    steps = ["norm", "q k v", "rope", "values", "output", "residual", "MLP"]
    assert {named for step in steps for named, _ in numbers_of(lines, step)} == {token}
    # After the layers, it is the last token that decides.
    assert numbers_of(lines, "logits")[0][0] == "' on'"
    rows = [
        [float(number) for number in found.groups()[1:]]
        for found in map(SHARE.match, lines)
        if found
    ]
    ((_, mixed),) = numbers_of(lines, "values")
    weighed = sum(weight * value for _, weight, value in rows)
    assert weighed == pytest.approx(mixed[0], abs=2e-4)
    (given,) = re.findall(r"added to the layer's input \((\S+) ", "\n".join(lines))
    ((_, output),), ((_, middle),) = numbers_of(lines, "output"), numbers_of(lines, "residual")
    assert float(given) + output[0] == pytest.approx(middle[0], abs=2e-3)


def test_a_screen_of_gpt2_says_what_gpt2_does(gpt2):
    lines = screen(str(gpt2), "-p", PROMPT, "--rows", "--decode", "2")
    text = "\n".join(lines)
    for part in [
        "position table",
        "layer norm: (x−μ)/σ",
        "GELU",
        "464",
        "3797",
        "3332",
        "319",
        "4 → 5",
    ]:
        assert part in text, part
    assert "rope" not in text


def test_without_utf8_the_screen_is_ascii(gpt2):
    for prompt in [PROMPT, "今天天气怎么样？"]:
        assert "\n".join(screen(str(gpt2), "-p", prompt, env=ASCII)).isascii()


def test_steps_are_explained_in_two_languages(default_model, gpt2):
    english = "\n".join(screen("-p", PROMPT, "--explain", "--lang", "en"))
    for part in ["grouped-query", "root mean", "angle"]:
        assert part in english, part
    for lang in ["zh", "zh-CN", "zh_CN"]:
        assert "Key（提供" in "".join(screen("-p", PROMPT, "--lang", lang)), lang
    assert "variance 1" in "\n".join(screen(str(gpt2), "-p", PROMPT, "--explain"))
    chinese = "\n".join(screen(str(gpt2), "-p", PROMPT, "--explain", "--lang", "zh"))
    assert "均值" in chinese
    in_china = {**os.environ, "LC_ALL": "zh_CN.UTF-8"}
    assert "均值" in "\n".join(screen(str(gpt2), "-p", PROMPT, "--explain", env=in_china))
    without = {**os.environ, "LC_ALL": "zh_CN"}
    assert "\n".join(screen(str(gpt2), "-p", PROMPT, "--explain", env=without)).isascii()


def test_a_long_prompt_in_chinese_does_not_wrap(default_model):
    screen("-p", "今天天气怎么样？" * 12, "--query", "20", "--layer", "29", "--rows")


def test_the_document_tells_the_article(gpt2):
    report = document("trace", str(gpt2), "-p", PROMPT, "--decode", "2", "--top", "5")
    assert report["schema"] == "refrain.trace/1"
    assert [token["id"] for token in report["tokens"]] == [464, 3797, 3332, 319]
    assert [token["text"] for token in report["tokens"]] == ["The", " cat", " sat", " on"]
    steps = {step["name"]: step for step in report["steps"]}
    assert steps["hook_embed"]["shape"] == [1, 4, HIDDEN]
    assert steps["hook_pos_embed"]["shape"] == [1, 4, HIDDEN]
    assert steps["blocks.0.attn.hook_q"]["shape"] == [1, 4, HEADS, HIDDEN // HEADS]
    assert steps["blocks.0.attn.hook_q"]["alias"] == "transformer.h.0.attn.c_attn"
    assert steps["blocks.0.attn.hook_pattern"]["shape"] == [1, HEADS, 4, 4]
    assert steps["blocks.1.mlp.hook_post"]["shape"] == [1, 4, 4 * HIDDEN]
    assert steps["logits"]["shape"] == [1, 4, VOCABULARY]
    assert report["model"]["context"] == CONTEXT
    assert sum(report["attention"]["weights"]) == pytest.approx(1)
    assert [row["position"] for row in report["rows"]] == [0, 1, 2, 3]
    assert report["rows"][3]["next"] == report["next"]
    kv = report["kv"]
    assert (kv["layers"], kv["k_shape"]) == (LAYERS, [1, HEADS, 4, HIDDEN // HEADS])
    assert kv["bytes"] == 4 * kv["bytes_per_token"] == 4 * 2 * LAYERS * HIDDEN * 4
    first, second = report["decode"]
    assert first["token"]["id"] == report["next"][0]["id"]
    assert second["token"]["id"] == first["next"][0]["id"]
    assert (first["cache_len"], second["cache_len"]) == (5, 6)
    assert first["attention_shape"] == [1, HEADS, 1, 5]
    for part in ["q", "k", "v"]:
        assert first[f"new_{part}_shape"] == [1, HEADS, 1, HIDDEN // HEADS]
    assert first["k_shape"] == first["v_shape"] == [1, HEADS, 5, HIDDEN // HEADS]
    assert first["layer_evaluations"] == LAYERS
    assert first["layer_evaluations_without_cache"] == 5 * LAYERS


def test_greedy_decoding_is_what_run_answers(default_model):
    traced = document("trace", "-p", "The capital of France is", "--decode", "6")
    options = ["--raw", "--temperature", "0", "--max-tokens", "6"]
    answered = document("run", "-p", "The capital of France is", *options)
    assert [step["token"]["id"] for step in traced["decode"]] == answered["token_ids"]


def test_chat_renders_the_template(default_model):
    raw, chat = (document("trace", "-p", "Hi", *options)["tokens"] for options in ([], ["--chat"]))
    assert len(raw) == 1
    assert chat[0]["text"] == "<|im_start|>"
    assert len(chat) > 10


@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        (["--layer", "7"], 2, "no layer 7"),
        (["--layer", str(2**64 - 1)], 2, f"no layer {2**64 - 1}"),
        (["--head", "9"], 2, "no head 9"),
        (["--query", "-9"], 2, "no token -9"),
        (["--query", str(-(2**63))], 2, f"no token {-(2**63)}"),
        (["--decode", "5000"], 2, "shorten the prompt or lower --decode"),
        (["--top", "0"], 2, "--top"),
        (["--chat"], 2, "no chat template"),
    ],
)
def test_what_cannot_be_shown_is_said(gpt2, options, status, said):
    done = command("trace", str(gpt2), "-p", PROMPT, *options, check=status)
    assert done.stdout == ""
    assert said in done.stderr
    command("trace", str(gpt2), "-p", "", check=2)


def test_quiet_prints_nothing_but_the_document(gpt2):
    done = command("trace", str(gpt2), "-p", PROMPT, "--json", "--quiet")
    assert done.stderr == ""
    json.loads(done.stdout)
