"""`refrain cache replay`: hit rates of a trace, beside a list of blocks that knows no tree."""

import json
import random
from collections import OrderedDict

import pytest

from harness import command, document
from terminal import columns

BLOCK = 512


@pytest.fixture(scope="module")
def trace():
    """Conversations that go on from one another, as Mooncake's traces have them."""
    chance = random.Random(2026)
    requests, block = [], 0
    for number in range(400):
        earlier = chance.choice(requests)["hash_ids"] if requests else []
        ids = earlier[: chance.randrange(20)]
        for _ in range(chance.randrange(not ids, 9)):
            ids = [*ids, block]
            block += 1
        length = BLOCK * (len(ids) - 1) + chance.randrange(1, BLOCK + 1)
        line = {"timestamp": 250 * number, "input_length": length, "output_length": 1}
        requests.append({**line, "hash_ids": ids})
    return requests


@pytest.fixture
def file(trace, tmp_path):
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in trace))
    return path


def hits(trace, capacity):
    """Tokens that each request reuses, with the least recently used blocks evicted."""
    held, found = OrderedDict(), []
    for request in trace:
        ids = request["hash_ids"]
        leading = next((at for at, one in enumerate(ids) if one not in held), len(ids))
        found.append(min(BLOCK * leading, request["input_length"]))
        for one in reversed(ids):
            held[one] = None
            held.move_to_end(one)
        while capacity is not None and len(held) > capacity // BLOCK:
            held.popitem(last=False)
    return found


def test_hit_rates_are_those_of_a_list(trace, file):
    capacities = {"8Ki": 8 << 10, "100k": 100_000, "1Mi": 1 << 20, "unbounded": None}
    flags = ["--capacity", ",".join(capacities)]
    report = document("cache", "replay", str(file), *flags)
    assert (report["schema"], report["format"]) == ("refrain.replay/1", "mooncake")
    assert (report["requests"], report["block_tokens"]) == (len(trace), BLOCK)
    lengths = [request["input_length"] for request in trace]
    assert report["prompt_tokens"] == sum(lengths)
    shown = command("cache", "replay", str(file), *flags).stdout
    assert [line for line in shown.splitlines() if columns(line) > 80] == []
    half = len(trace) // 2
    for one, capacity in zip(report["capacities"], capacities.values(), strict=True):
        found = hits(trace, capacity)
        assert one["capacity_tokens"] == capacity
        assert one["reused_tokens"] == sum(found)
        rates = [sum(found) / sum(lengths), sum(found[half:]) / sum(lengths[half:])]
        assert [one["hit_rate"], one["last_half_hit_rate"]] == pytest.approx(rates)
        assert " ".join(f"{100 * rate:.2f} %" for rate in rates) in " ".join(shown.split())
        assert sum(stop["requests"] for stop in one["stops"]) == len(trace)
    assert report["capacities"][0]["evicted_tokens"] > 0
    assert report["capacities"][-1]["evicted_tokens"] == 0


def test_requests_are_replayed_and_drawn(default_model, tmp_path):
    system = "You are a helpful agent. Be brief. " * 8
    lines = []
    for question in ["Why?", "Why not?", "When?", "Why?"]:
        said = [("system", system), ("user", question)]
        lines.append({"messages": [{"role": role, "content": text} for role, text in said]})
    path, picture = tmp_path / "requests.jsonl", tmp_path / "hits.svg"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    flags = ["--capacity", "4Ki", "--capacity", "unbounded", "--plot", str(picture)]
    report = document("cache", "replay", str(path), *flags)
    assert (report["format"], report["block_tokens"]) == ("requests", 16)
    small, unbounded = report["capacities"]
    assert small["hit_rate"] == unbounded["hit_rate"] > 0.5
    reasons = {stop["reason"]: stop["requests"] for stop in unbounded["stops"]}
    assert reasons == {"first_request": 1, "different_token": 2, "end_of_prompt": 1}
    drawn = picture.read_text()
    assert drawn.startswith("<svg") and "unbounded" in drawn and "4Ki" in drawn


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("{", "line 401: column 1: EOF while parsing an object"),
        ('{"prompt": "Hi"}', "line 401: column 16: missing field `timestamp`"),
        ('{"timestamp": 0, "input_length": 1, "hash_ids": [1]}', "line 401: its 'timestamp' 0"),
    ],
)
def test_a_line_at_fault_is_named(file, line, part):
    with file.open("a") as out:
        out.write(line + "\n")
    done = command("cache", "replay", str(file), check=1)
    assert part in done.stderr and str(file) in done.stderr


def test_what_cannot_be_replayed_is_said(file, tmp_path):
    empty = tmp_path / "empty.jsonl"
    empty.write_text("\n")
    for words, status, part in [
        ([str(empty)], 1, "there is no request in it"),
        ([str(tmp_path / "none.jsonl")], 1, "No such file"),
        ([str(file), "--capacity", "100"], 1, "100 tokens holds no block of 512"),
        ([str(file), "--capacity", "much"], 2, "a number of tokens"),
        ([str(file), "--plot", "hits.txt"], 2, "draws an .svg file"),
    ]:
        assert part in command("cache", "replay", *words, check=status).stderr
