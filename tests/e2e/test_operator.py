"""`refrain cache ls|show|pin|unpin|evict|clear|stats`: an operator and a running server."""

import json
import time

import pytest
from test_disk import SYSTEM, ask, disk, metric, wait_for, wait_until_written

from harness import Server, command, verdict

__all__ = ["disk"]
OTHER = SYSTEM.replace("Rule", "Law")


def operate(server: Server, *words: str, check: int = 0):
    """What `refrain cache` prints with --json, or its error."""
    done = command("cache", *words, "--json", "--url", server.url, check=check)
    return done.stderr if check else json.loads(done.stdout)


def prefixes(server: Server, *words: str) -> list[dict]:
    return operate(server, "ls", *words)["prefixes"]


def prefix_of(server: Server, system: str) -> dict:
    """The listed prefix whose text has this system prompt."""
    found = [one for one in prefixes(server) if system[:12] in one["text"]]
    assert len(found) == 1, found
    return found[0]


@pytest.fixture(scope="module")
def server(default_model):
    with Server() as server:
        yield server


def test_prefixes_are_listed_and_shown(server):
    operate(server, "clear")
    assert prefixes(server) == []
    assert "no prefix of yours" in command("cache", "ls", "--url", server.url).stdout
    first, second = ask(server), ask(server, OTHER)
    listed = prefixes(server)
    assert [one["request"] for one in listed] == [second.id, first.id]
    assert prefixes(server, "-n", "1") == listed[:1]
    for one, answer in zip(listed, [second, first], strict=True):
        computed = verdict(answer)["prompt_tokens"] + answer.usage.completion_tokens - 1
        assert one["tokens"] == one["tiers"]["ram"] == computed
        assert one["tiers"]["disk"] == one["bytes"]["disk"] == 0 < one["bytes"]["ram"]
        assert len(one["text"]) <= 80
        assert (one["pins"], one["expires_at"]) == ([], None)
    shown = operate(server, "show", listed[0]["id"])
    assert shown["schema"] == "refrain.cache_show/1"
    assert OTHER in shown["text"] and shown["text"].startswith(listed[0]["text"])
    assert len(shown["token_ids"]) == shown["tokens"]
    plain = server.http().post("/detokenize", json={"tokens": shown["token_ids"]}).json()
    assert plain["prompt"] == shown["text"]
    table = command("cache", "ls", "--url", server.url).stdout.splitlines()
    assert table[1].startswith(listed[0]["id"]) and table[1].endswith("s ago")
    whole = command("cache", "show", listed[0]["id"], "--url", server.url).stdout
    assert OTHER in whole


def test_one_prefix_is_evicted_and_all_are_cleared(server):
    ask(server), ask(server, OTHER)
    evicted = operate(server, "evict", prefix_of(server, OTHER)["id"])["pages"]
    assert evicted["ram"] > 5 and evicted["disk"] == 0
    seen = verdict(ask(server, OTHER))
    assert (seen["stop"]["reason"], seen["stop"]["at"]) == ("evicted", seen["reused_tokens"])
    assert verdict(ask(server))["stop"]["reason"] == "end_of_prompt"
    operate(server, "clear")
    assert verdict(ask(server))["stop"]["reason"] == "first_request"
    message = operate(server, "evict", "000000000000", check=1)
    assert "no prefix 000000000000" in message


def test_a_pin_stays_until_it_is_taken_back(server):
    operate(server, "clear")
    ask(server)
    one = prefix_of(server, SYSTEM)
    pinned = operate(server, "pin", one["id"], "rules")
    assert (pinned["name"], pinned["tokens"]) == ("rules", one["tokens"])
    listed = prefix_of(server, SYSTEM)
    assert listed["pins"] == ["rules"]
    assert listed["pinned"] == {"ram": one["tokens"], "disk": 0}
    assert "pinned as rules: " in command("cache", "ls", "--url", server.url).stdout
    assert operate(server, "clear")["pages"]["ram"] == 0
    assert operate(server, "evict", one["id"])["pages"]["ram"] == 0
    assert verdict(ask(server))["stop"]["reason"] == "end_of_prompt"
    operate(server, "unpin", "rules")
    assert "no pin rules" in operate(server, "unpin", "rules", check=1)
    assert operate(server, "clear")["pages"]["ram"] > 5
    assert prefixes(server) == []


def test_a_namespace_sees_and_clears_only_its_own(server):
    operate(server, "clear")
    ask(server)
    ask(server, OTHER, extra_body={"cache_salt": "mine"})
    mine = ["--cache-salt", "mine"]
    (one,) = prefixes(server, *mine)
    assert "Law" in one["text"]
    assert "Rule" in prefixes(server)[0]["text"] and len(prefixes(server)) == 1
    assert "no prefix" in operate(server, "show", one["id"], check=1)
    operate(server, "pin", one["id"], "law", *mine)
    assert "no pin" in operate(server, "unpin", "law", check=1)
    operate(server, "unpin", "law", *mine)
    operate(server, "clear")
    assert len(prefixes(server, *mine)) == 1
    operate(server, "clear", *mine)
    assert prefixes(server, *mine) == []


def test_figures_are_those_of_the_metrics(server):
    ask(server)
    stats = operate(server, "stats")
    assert stats["ram"]["tokens"] == metric(server, "refrain_prompt_cache_tokens") > 0
    assert stats["ram"]["pages"] == metric(server, "refrain_prompt_cache_pages")
    assert stats["tokens"]["reused"] == metric(server, "refrain_reused_tokens_total")
    assert stats["disk"] is None
    assert "keeps nothing there" in command("cache", "stats", "--url", server.url).stdout


def test_what_is_wrong_is_said(server):
    http = server.http()
    page = http.post("/refrain/cache/clear", json={}, headers={"origin": "http://evil.example"})
    assert page.status_code == 400 and "web pages" in page.json()["error"]["message"]
    for path, body, part in [
        ("ls", {"limit": 0}, "limit"),
        ("ls", {"limit": 1001}, "limit"),
        ("show", {}, "'id' is missing"),
        ("pin", {"id": "x"}, "'name' is missing"),
        ("pin", {"id": "x", "name": "n" * 65}, "64 bytes"),
        ("pin", {"id": "x", "name": "a\nb"}, "control characters"),
        ("pin", {"id": "x", "name": "a\x1b[2J"}, "control characters"),
    ]:
        answer = http.post(f"/refrain/cache/{path}", json=body)
        assert answer.status_code == 400 and part in answer.json()["error"]["message"]
    assert http.post("/refrain/cache/nothing", json={}).status_code == 404
    nobody = command("cache", "ls", "--url", "http://127.0.0.1:1", check=1).stderr
    assert "is refrain serve running?" in nobody


def test_what_is_given_up_does_not_come_back_from_disk(disk):
    with Server(*disk) as first:
        kept = ask(first)
        wait_until_written(first, verdict(kept)["prompt_tokens"])
        before = metric(first, "refrain_disk_pages")
        lost = ask(first, OTHER)
        full = (verdict(lost)["prompt_tokens"] + lost.usage.completion_tokens - 1) // 16
        shared = verdict(lost)["reused_tokens"] // 16
        wait_for(lambda: metric(first, "refrain_disk_pages") == before + full - shared)
        assert prefix_of(first, OTHER)["tiers"]["disk"] == full * 16
        pages = operate(first, "evict", prefix_of(first, OTHER)["id"])["pages"]
        assert pages["disk"] == full - shared
        wait_for(lambda: metric(first, "refrain_disk_pages") == before)
    with Server(*disk) as second:
        assert verdict(ask(second))["reused_from"]["disk"] > 0
        assert verdict(ask(second, OTHER))["reused_tokens"] <= (shared + 1) * 16
        wait_for(lambda: metric(second, "refrain_disk_pages") >= before)
        operate(second, "clear")
        wait_for(lambda: metric(second, "refrain_disk_pages") == 0)
        assert operate(second, "stats")["disk"]["pages"] == 0
    with Server(*disk) as third:
        assert prefixes(third) == []
        assert verdict(ask(third))["stop"]["reason"] == "first_request"


def test_a_pin_covers_what_is_on_disk_and_keeps_it_there(disk):
    with Server(*disk) as first:
        answer = ask(first)
        prompt = verdict(answer)["prompt_tokens"]
        wait_until_written(first, prompt + answer.usage.completion_tokens - 1)
    with Server(*disk) as second:
        (one,) = prefixes(second)
        assert one["tiers"] == {"ram": 0, "disk": one["tokens"]}
        assert one["last_used"] is None
        table = command("cache", "ls", "--url", second.url).stdout
        assert "before the server's start" in table
        pinned = operate(second, "pin", one["id"], "rules")
        assert pinned["tokens"] == pinned["prefix_tokens"] == one["tokens"]
        (kept,) = prefixes(second)
        assert kept["pinned"] == {"ram": one["tokens"], "disk": one["tokens"]}
        assert kept["expires_at"] is None and kept["last_used"] > 0
        cleared = operate(second, "clear")["pages"]
        assert cleared["disk"] == 0
        seen = verdict(ask(second))
        assert seen["reused_from"] == {"ram": min(prompt - 1, one["tokens"]), "disk": 0}
    with Server(*disk) as third:
        assert max(one["tiers"]["disk"] for one in prefixes(third)) >= one["tokens"]


def test_what_is_cleared_was_never_seen(disk):
    """Whatever is just being written, and whatever other prompts begin like it."""
    with Server(*disk) as server:
        for number in range(6):
            ask(server), ask(server, SYSTEM + " And be kind.")
            if number % 2:
                wait_for(lambda: metric(server, "refrain_disk_queued_bytes") == 0)
            before = time.time()
            operate(server, "clear")
            stop = verdict(ask(server, max_tokens=1))["stop"]
            assert stop["reason"] == "first_request"
            assert before * 1000 - 1 <= stop["since"] <= time.time() * 1000
            assert stop.get("held_tokens") is None
        assert metric(server, "refrain_prompt_cache_evicted_pages_total") == 0


def test_a_server_is_named_without_a_scheme(server):
    host = server.url.removeprefix("http://")
    assert "in RAM" in command("cache", "stats", "--url", host).stdout


def test_pins_leave_room_for_requests(default_model):
    """In 56 pages, pins keep half; and a request that needs the other half and more is answered."""
    with Server("--kv-budget", "20MiB") as server:
        refused = 0
        for number in range(4):
            system = f"Book {number}. " + SYSTEM
            answer = ask(server, system)
            found = [one for one in prefixes(server) if one["request"] == answer.id]
            done = command(
                "cache", "pin", found[0]["id"], f"p{number}", "--url", server.url, check=None
            )
            refused += done.returncode != 0
            if done.returncode:
                assert "half of the memory" in done.stderr
        assert 0 < refused < 4
        client = server.client()
        messages = [{"role": "user", "content": "Tell me of the sea. " * 60}]
        for stream in (False, True):
            long = client.chat.completions.create(
                model="smollm2",
                messages=messages,
                max_tokens=400,
                stream=stream,
                extra_body={"ignore_eos": True},
            )
            if stream:
                assert sum(len(chunk.choices) for chunk in long) > 100
            else:
                assert long.usage.completion_tokens == 400
        assert metric(server, "refrain_requests_failed_total") == 0


def test_a_misspelt_field_clears_nothing(server):
    ask(server)
    held = len(prefixes(server))
    with server.http() as http:
        answer = http.post("/refrain/cache/clear", json={"salt": "tenant"})
        assert answer.status_code == 400
        assert "salt" in answer.json()["error"]["message"]
    assert len(prefixes(server)) == held > 0
