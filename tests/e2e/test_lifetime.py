"""How long prefixes live: by a request's own word, by configuration, and past it by a pin."""

import json
import time

from test_disk import PAGE, SYSTEM, ask, disk, metric, wait_for, wait_until_written
from test_operator import operate, prefixes

from harness import Server, command, verdict

__all__ = ["disk"]
OTHER = SYSTEM.replace("Rule", "Law")


def ttl(time: str) -> dict:
    return {"prompt_cache_options": {"ttl": time}}


def assert_expired(answer, since: float) -> None:
    stop = verdict(answer)["stop"]
    assert stop["reason"] == "expired"
    assert since * 1000 <= stop["expired_at"] <= time.time() * 1000
    assert stop["held_tokens"] > stop["at"] == verdict(answer)["reused_tokens"]


def test_a_request_says_how_long_its_prefix_lives(disk):
    with Server(*disk) as server:
        asked = time.time()
        ask(server, extra_body=ttl("1s"))
        ask(server, OTHER)
        (other, one) = prefixes(server)
        assert other["expires_at"] is None
        assert 0 < one["expires_at"] - one["last_used"] <= 1000
        # Ended by the time alone: nothing else is asked.
        wait_for(lambda: not any(one["expires_at"] for one in prefixes(server)), seconds=5)
        assert time.time() - asked >= 1
        assert_expired(ask(server), asked + 1)
        assert verdict(ask(server, OTHER))["stop"]["reason"] == "end_of_prompt"


def test_what_has_expired_is_not_restored(disk):
    with Server(*disk) as first:
        answer = ask(first, extra_body=ttl("2s"))
        wait_until_written(first, verdict(answer)["prompt_tokens"])
    time.sleep(2)
    with Server(*disk) as second:
        assert verdict(ask(second))["reused_tokens"] == 0


def test_all_lives_end_by_configuration_and_each_use_extends_them(default_model):
    with Server("--cache-ttl", "3s") as server:
        ask(server)
        for _ in range(4):
            time.sleep(1)
            assert verdict(ask(server))["stop"]["reason"] == "end_of_prompt"
        (one,) = prefixes(server)
        assert 0 < one["expires_at"] - one["last_used"] <= 3000
        assert "expires in" in command("cache", "ls", "--url", server.url).stdout
        operate(server, "pin", one["id"], "rules")
        time.sleep(3.5)
        assert verdict(ask(server, max_tokens=1))["stop"]["reason"] == "end_of_prompt"
        # A request's own word is stronger.
        used = time.time()
        ask(server, OTHER, extra_body=ttl("1s"))
        time.sleep(1.5)
        assert_expired(ask(server, OTHER), used + 1)


def test_a_wrong_time_is_refused(server):
    for wrong in ["", "30", "0s", "1w", "-1m", 30, "400d"]:
        body = {"messages": [{"role": "user", "content": "Hi"}]} | ttl(wrong)
        answer = server.http().post("/v1/chat/completions", json=body)
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == "prompt_cache_options.ttl"
    others = {"prompt_cache_options": {"ttl": "1m", "mode": "implicit"}}
    ignored = ask(server, extra_body=others).model_extra["refrain"]["ignored"]
    assert ignored == ["prompt_cache_options.mode"]
    said = command("serve", "--cache-ttl", "1 week", check=2).stderr
    assert "must be a time like 90s" in said


def test_prompts_are_warmed_and_pinned(default_model, tmp_path):
    file = tmp_path / "warm.jsonl"
    bodies = [
        {"messages": [{"role": "system", "content": system}, {"role": "user", "content": "?"}]}
        for system in (SYSTEM, OTHER)
    ]
    bodies[1]["cache_salt"] = "mine"
    file.write_text("\n\n".join(json.dumps(body) for body in bodies) + "\n")
    with Server("--warm", str(file)) as server:
        wait_for(lambda: any("Warmed 2 of 2 prompts" in line for line in server.said))
        assert any("Warming 2 prompts" in line for line in server.said)
        (one,), (other,) = prefixes(server), prefixes(server, "--cache-salt", "mine")
        assert (one["pins"], other["pins"]) == (["warm-1"], ["warm-3"])
        seen = verdict(ask(server))
        assert seen["compared_with"] == "warm-1" and seen["reused_tokens"] > 5 * PAGE
        assert metric(server, "refrain_requests_failed_total") == 0
        assert server.terminate() == 0


def test_a_line_that_cannot_be_warmed_is_named(default_model, tmp_path):
    file = tmp_path / "warm.jsonl"
    file.write_text('{"prompt": "Once upon a time"}\n{"messages": []}\n')
    said = command("serve", "--port", "0", "--warm", str(file), check=1).stderr
    assert f"--warm {file}: line 2: " in said and "messages" in said
    for wrong in ('{"messages": [', "# a comment", "null", "Once upon a time"):
        file.write_text(f'{{"prompt": "Once upon a time"}}\n{wrong}\n')
        said = command("serve", "--port", "0", "--warm", str(file), check=1).stderr
        assert "warm.jsonl: line 2: " in said and "JSON" in said, wrong
    gone = command("serve", "--port", "0", "--warm", str(tmp_path / "gone"), check=1).stderr
    assert "No such file" in gone and "--warm" in gone
