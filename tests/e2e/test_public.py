"""Prompts that the operator names: public ones, which all callers may use, and those of one key."""

import json
import time

import pytest
from test_keys import key_file, keys
from test_reasons import PAGE, TEXT, Talk, model

from harness import Server, command

__all__ = ["key_file", "keys", "model"]
RULES = "Rules of the house. " + TEXT
OWN = "Notes of the other house. " + TEXT


def start(tmp_path, model, lines: list[dict], *flags: str) -> Server:
    file = tmp_path / "warm.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return Server(str(model), "--warm", str(file), *flags)


def wait_until_ready(server: Server) -> None:
    end = time.monotonic() + 30
    while server.http().get("/ready").status_code != 200:
        assert time.monotonic() < end
        time.sleep(0.02)


def as_caller(server: Server, key: dict) -> Talk:
    talk = Talk(server)
    talk.http.headers["authorization"] = f"Bearer {key['key']}"
    return talk


def rows(talk: Talk, prompt: str, **fields) -> list[float]:
    """Log-probabilities of an answer: equal only if all bits are."""
    fields = {"prompt": prompt, "max_tokens": 8, "temperature": 0, "logprobs": 5} | fields
    return talk.post("/v1/completions", **fields)["choices"][0]["logprobs"]["top_logprobs"]


def test_a_public_prefix_is_everybodys_and_what_follows_it_is_not(model, tmp_path, keys, key_file):
    lines = [{"prompt": RULES, "public": True}, {"prompt": OWN, "key": "alice"}]
    flags = ["--api-keys", str(key_file)]
    with start(tmp_path, model, lines, *flags) as server:
        wait_until_ready(server)
        alice, bob = (as_caller(server, keys[name]) for name in ("alice", "bob"))
        full = len(alice.ids(RULES)) // PAGE * PAGE
        asked = RULES + " Who wrote them?"
        for talk in (alice, bob):
            seen = talk.complete(asked)
            assert seen["reused_from"] == {"ram": full, "disk": 0, "public": full}
            assert (seen["stop"]["reason"], seen["stop"]["at"]) == ("end_of_cached", full)
            assert seen["compared_with"] is None
            again = talk.complete(asked)
            assert again["stop"]["reason"] == "end_of_prompt"
            assert "public" not in again["reused_from"], "it has a copy of its own by now"
        # Of what one asks behind it, the other is told nothing.
        alice.complete(RULES + " My secret is a red herring.")
        seen = bob.complete(RULES + " My secret is a red balloon.")
        assert seen["reused_tokens"] < len(bob.ids(RULES)) + 2
        assert "herring" not in json.dumps(seen)
        # A salt is another namespace, and takes what is public too.
        salted = bob.complete(asked, cache_salt="mine")
        assert salted["reused_from"]["public"] == full
        # What is one key's is nobody else's.
        assert bob.complete(OWN)["reused_tokens"] == 0
        own = alice.complete(OWN)
        assert own["stop"]["reason"] == "end_of_prompt" and own["compared_with"] == "warm-2"
        assert rows(bob, asked) == rows(bob, asked, cache_prompt=False)


def test_public_prefixes_are_no_callers_to_see_or_give_up(model, tmp_path):
    lines = [{"prompt": RULES, "public": True}, {"prompt": OWN}]
    with start(tmp_path, model, lines) as server:
        wait_until_ready(server)
        talk = Talk(server)
        listed = talk.post("/refrain/cache/ls")["prefixes"]
        assert [one["pins"] for one in listed] == [["warm-2"]]
        talk.post("/refrain/cache/unpin", name="warm-2")
        talk.post("/refrain/cache/clear")
        assert talk.complete(RULES + " Who?")["reused_from"]["public"] > 0
        # Its own copy it may give up, and take another.
        assert talk.post("/refrain/cache/clear")["pages"]["ram"] > 0
        assert talk.complete(RULES + " Who?")["reused_from"]["public"] > 0
        seen = talk.complete(RULES + " Who?", cache_prompt=False)
        assert seen["stop"]["reason"] == "disabled_by_request"


def test_a_system_message_alone_can_be_public(model, tmp_path):
    line = {"messages": [{"role": "system", "content": RULES}], "public": True}
    with start(tmp_path, model, [line]) as server:
        wait_until_ready(server)
        talk = Talk(server)
        seen = talk.chat(RULES, "Who wrote them?", cache_salt="any")
        common = len(talk.ids(f"system: {RULES}\n"))
        assert common - 2 * PAGE < seen["reused_from"]["public"] <= common


def test_public_prefixes_outlive_eviction(model, tmp_path):
    flags = ["--context", "256", "--kv-budget", "256KiB"]
    with start(tmp_path, model, [{"prompt": RULES, "public": True}], *flags) as server:
        wait_until_ready(server)
        talk = Talk(server)
        for n in range(6):
            talk.complete(f"{n} " * 60)
        assert talk.complete(RULES + " Who?")["reused_from"]["public"] > 0


@pytest.mark.parametrize(
    ("line", "with_keys", "problem"),
    [
        ({"public": 1}, False, "'public' must be true or false"),
        ({"public": True, "cache_salt": "a"}, False, "neither 'key' nor 'cache_salt'"),
        ({"public": True, "key": "alice"}, True, "neither 'key' nor 'cache_salt'"),
        ({"key": "alice"}, False, "'key' needs --api-keys"),
        ({"key": 1}, True, "'key' must be the name of an API key"),
        ({"key": "carol"}, True, 'no API key has the name "carol"'),
        ({}, True, "say whose it is"),
    ],
)
def test_a_line_that_is_nobodys_is_named(model, tmp_path, key_file, line, with_keys, problem):
    file = tmp_path / "warm.jsonl"
    file.write_text(json.dumps({"prompt": "Once upon a time"} | line))
    keys = ["--api-keys", str(key_file)] if with_keys else []
    start = ["serve", str(model), "--port", "0", "--warm", str(file), *keys]
    said = command(*start, check=1).stderr
    assert "warm.jsonl: line 1: " in said and problem in said
