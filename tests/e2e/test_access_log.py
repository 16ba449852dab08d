"""The access log: a line for each request that agrees with what the client saw, and says nothing of
what was asked or answered."""

import json
import time

import httpx2
import openai
import pytest
from test_access import QUESTION, ask, keys

from harness import Server, command, verdict

FIELDS = [
    "time",
    "request",
    "response",
    "key",
    "method",
    "path",
    "status",
    "whole",
    "model",
    "prompts",
    "reused_tokens",
    "computed_tokens",
    "output_tokens",
    "reason",
    "ttft_ms",
    "ms",
    "bytes",
]
SECRET = "Name the river Xyzzyquux."


def lines(path, count: int) -> list[dict]:
    """The first so many lines, once they are written; no more may follow."""
    end = time.monotonic() + 20
    while len(text := path.read_text().splitlines()) < count:
        assert time.monotonic() < end, text
        time.sleep(0.02)
    assert len(text) == count
    return [json.loads(line) for line in text]


def test_each_request_has_a_line_that_agrees_with_its_answer(default_model, tmp_path):
    made, log = keys(tmp_path / "keys", alice=""), tmp_path / "access.jsonl"
    flags = ["--api-keys", str(tmp_path / "keys"), "--access-log", str(log)]
    with Server(*flags) as server:
        client = server.client(made["alice"])
        asked = [{"role": "user", "content": SECRET}]
        began = time.monotonic()
        raw = client.chat.completions.with_raw_response.create(
            model="smollm2", messages=asked, max_tokens=4
        )
        took_ms = (time.monotonic() - began) * 1e3
        first = raw.parse()
        chunks = list(
            ask(client, messages=asked, stream=True, stream_options={"include_usage": True})
        )
        several = client.completions.create(
            model="smollm2", prompt=["Once upon", "Twice below"], max_tokens=2
        )
        with pytest.raises(openai.AuthenticationError):
            ask(server.client("wrong"), messages=asked)
        with server.http() as http:
            http.get("/health?cache_salt=Xyzzyquux")
            http.options("/v1/models/" + "x" * 2000)
        one, stream, texts, refused, health, odd = lines(log, 6)
    for line in (one, stream, texts, refused, health, odd):
        assert list(line) == FIELDS
        assert line["whole"] is True and line["ms"] > 0
    assert one["request"] == raw.headers["x-request-id"]
    assert one["response"] == first.id
    assert (one["key"], one["method"], one["status"]) == ("alice", "POST", 200)
    assert (one["path"], one["model"]) == ("/v1/chat/completions", first.model)
    assert one["bytes"] == len(raw.content)
    assert 0 < one["ttft_ms"] <= one["ms"] <= took_ms
    assert one["time"].endswith("Z") and len(one["time"]) == len("2026-01-05T10:00:00.000Z")
    for line, answer in ((one, first), (stream, chunks[-1])):
        said = verdict(answer)
        assert line["reused_tokens"] == said["reused_tokens"]
        assert line["computed_tokens"] == said["computed_tokens"]
        assert line["reason"] == said["stop"]["reason"]
        assert line["output_tokens"] == answer.usage.completion_tokens
        assert line["prompts"] == 1
    assert stream["reused_tokens"] > 0
    prompts = several.model_extra["refrain"]["prompts"]
    assert texts["prompts"] == 2
    assert texts["computed_tokens"] == sum(p["verdict"]["computed_tokens"] for p in prompts)
    reasons = {p["verdict"]["stop"]["reason"] for p in prompts}
    assert texts["reason"] == (reasons.pop() if len(reasons) == 1 else None)
    assert (refused["status"], refused["key"], refused["computed_tokens"]) == (401, None, None)
    assert (health["path"], health["model"], health["prompts"]) == ("/health", None, 0)
    assert len(odd["path"]) == 256
    text = log.read_text()
    assert "Xyzzyquux" not in text and made["alice"] not in text
    assert first.choices[0].message.content not in text
    assert log.stat().st_mode & 0o777 == 0o600


def test_a_client_that_goes_away_has_a_line_too(default_model, tmp_path):
    log = tmp_path / "access.jsonl"
    with Server("--access-log", str(log)) as server:
        stream = ask(server.client(), max_tokens=2000, stream=True, extra_body={"ignore_eos": True})
        next(iter(stream))
        stream.close()
        body = {"messages": QUESTION, "max_tokens": 2000, "ignore_eos": True}
        with pytest.raises(httpx2.ReadTimeout):
            httpx2.post(f"{server.url}/v1/chat/completions", json=body, timeout=0.3)
        streamed, unread = lines(log, 2)
    assert (streamed["status"], streamed["whole"]) == (200, False)
    assert (unread["status"], unread["whole"], unread["bytes"]) == (None, False, 0)
    assert unread["ms"] >= 200


def test_lines_are_appended_and_a_place_that_is_none_is_named(default_model, tmp_path):
    log = tmp_path / "access.jsonl"
    for count in (1, 2):
        with Server("--access-log", str(log)) as server:
            server.http().get("/health")
            lines(log, count)
    said = command("serve", "--access-log", "/nowhere/log", check=1).stderr
    assert "no access log in /nowhere/log: No such file" in said


def test_nothing_is_written_without_the_flag(server):
    ask(server.client())
    assert not [line for line in server.said if line.startswith("{")]
