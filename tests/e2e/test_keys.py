"""API keys, and what callers with different keys can see of each other: nothing."""

import hashlib
import json
import time
from pathlib import Path

import httpx2
import openai
import pytest

from harness import Server, command, verdict

PROMPT = "The lamp on the pier was lit again, and the boats came home one by one. " * 8
# The file is looked at once a second.
RELOAD_SECONDS = 10.0


def new_key(name: str) -> dict:
    return json.loads(command("key", name, "--json").stdout)


def write_keys(path: Path, *keys: dict) -> None:
    path.write_text("# of the tests\n" + "".join(key["line"] + "\n" for key in keys))


@pytest.fixture
def keys() -> dict[str, dict]:
    return {name: new_key(name) for name in ("alice", "bob")}


@pytest.fixture
def key_file(tmp_path, keys) -> Path:
    path = tmp_path / "keys.txt"
    write_keys(path, *keys.values())
    return path


def ask(client, prompt=PROMPT, **body):
    return client.completions.create(
        model="gpt2", prompt=prompt, max_tokens=2, temperature=0, extra_body=body
    )


def is_known(server: Server, key: str) -> bool:
    try:
        server.client(key).models.list()
    except openai.AuthenticationError:
        return False
    return True


def wait_until(condition) -> None:
    deadline = time.monotonic() + RELOAD_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_new_key_is_shown_once_beside_the_line_of_its_hash():
    done = command("key", "alice", "--quiet")
    [line] = done.stdout.splitlines()
    [key] = done.stderr.splitlines()
    assert line == f"alice {hashlib.sha256(key.encode()).hexdigest()}"
    assert new_key("alice")["key"] != new_key("alice")["key"]
    for wrong in ["", "a b", "a/b", "n" * 65, "naïve"]:
        assert "a name has 1 to 64 of" in command("key", wrong, check=2).stderr


def test_a_file_that_is_no_file_of_keys_stops_the_start(gpt2, tmp_path):
    path = tmp_path / "keys.txt"
    start = ["serve", str(gpt2), "--port", "0", "--api-keys", str(path)]
    assert "cannot read it" in command(*start, check=1).stderr
    secret = new_key("alice")["key"]
    path.write_text(f"# a key where its hash belongs\nalice {secret}\n")
    said = command(*start, check=1).stderr
    assert "line 2: the hash must have 64 hexadecimal digits" in said
    assert secret not in said


def test_everything_but_health_needs_a_key(gpt2, keys, key_file):
    with Server(str(gpt2), "--api-keys", str(key_file)) as server, server.http() as http:
        assert http.get("/health").status_code == 200
        closed = [
            ("POST", "/v1/chat/completions"),
            ("POST", "/v1/completions"),
            ("GET", "/v1/models"),
            ("GET", "/v1/models/gpt2"),
            ("POST", "/tokenize"),
            ("POST", "/detokenize"),
            ("GET", "/metrics"),
            ("GET", "/nothing-here"),
        ]
        key = keys["alice"]["key"]
        wrong = [
            {},
            {"authorization": f"Basic {key}"},
            {"authorization": f"Bearer {key[:-1]}"},
            {"authorization": f"Bearer {keys['alice']['line'].split()[1]}"},
            {"authorization": "Bearer naïve".encode()},
            {"x-api-key": "alice"},
            # What is sent first counts.
            {"authorization": "Bearer wrong", "x-api-key": key},
        ]
        for method, path in closed:
            for headers in wrong:
                refused = http.request(method, path, headers=headers)
                assert refused.status_code == 401, (path, headers)
                assert refused.headers["www-authenticate"] == "Bearer"
                error = refused.json()["error"]
                assert error["code"] == "invalid_api_key"
                assert error["type"] == "invalid_request_error"
                assert key not in refused.text
        for headers in [{"authorization": f"bearer {key}"}, {"x-api-key": key}]:
            assert http.get("/v1/models", headers=headers).status_code == 200
            assert http.get("/nothing-here", headers=headers).status_code == 404
        # A large body of somebody without a key is refused as any other.
        large = http.post("/v1/completions", content=b" " * (4 << 20))
        assert large.status_code == 401


def test_callers_share_nothing_not_even_under_one_salt(gpt2, keys, key_file):
    with Server(str(gpt2), "--api-keys", str(key_file)) as server:
        alice, bob = (server.client(keys[name]["key"]) for name in ("alice", "bob"))
        for body in [{}, {"cache_salt": "one"}, {"cache_salt": ""}]:
            first = verdict(ask(alice, **body))
            assert first["stop"]["reason"] == "first_request"
            # Bob's prompts are the same, and differ in the middle: either would show.
            for prompt in [PROMPT, PROMPT[:300] + " Else."]:
                before = metrics_of_reuse(server, keys["bob"]["key"])
                answer = ask(bob, prompt, **body)
                seen = verdict(answer)
                if prompt == PROMPT:
                    assert seen["stop"]["reason"] == "first_request"
                    assert seen["reused_tokens"] == 0
                    assert seen["compared_with"] is None
                    assert answer.usage.prompt_tokens_details.cached_tokens == 0
                    assert metrics_of_reuse(server, keys["bob"]["key"]) == before
                else:
                    # Compared with bob's own request, which came after alice's.
                    assert seen["stop"]["reason"] == "different_token"
                    assert seen["compared_with"].startswith("cmpl-")
            again = ask(alice, **body)
            assert verdict(again)["stop"]["reason"] == "end_of_prompt"
        text = ask(alice).to_json() + metrics(server, keys["alice"]["key"])
        assert "alice" not in text and "bob" not in text


def test_a_caller_lists_and_evicts_only_what_is_its_own(gpt2, keys, key_file):
    with Server(str(gpt2), "--api-keys", str(key_file)) as server:
        alice, bob = ({"x-api-key": keys[name]["key"]} for name in ("alice", "bob"))
        ask(server.client(keys["alice"]["key"]), cache_salt="one")

        def operate(order, headers, **body):
            url = f"{server.url}/refrain/cache/{order}"
            return httpx2.post(url, headers=headers, json={"cache_salt": "one"} | body)

        [mine] = operate("ls", alice).json()["prefixes"]
        assert operate("ls", bob).json()["prefixes"] == []
        for order in ("show", "evict"):
            assert operate(order, bob, id=mine["id"]).status_code == 404
        assert operate("clear", bob).status_code == 200
        assert operate("ls", {}).status_code == 401
        assert [mine["id"]] == [one["id"] for one in operate("ls", alice).json()["prefixes"]]


def metrics(server: Server, key: str) -> str:
    headers = {"x-api-key": key}
    return httpx2.get(f"{server.url}/metrics", headers=headers).text


def metrics_of_reuse(server: Server, key: str) -> str:
    lines = metrics(server, key).splitlines()
    return next(line for line in lines if line.startswith("refrain_reused_tokens_total "))


def test_a_rotated_key_keeps_its_cache_and_a_broken_file_the_keys(gpt2, keys, key_file):
    with Server(str(gpt2), "--api-keys", str(key_file)) as server:
        old, new = keys["alice"], new_key("alice")
        ask(server.client(old["key"]))
        write_keys(key_file, new, keys["bob"])
        wait_until(lambda: is_known(server, new["key"]))
        assert not is_known(server, old["key"])
        seen = verdict(ask(server.client(new["key"])))
        assert seen["stop"]["reason"] == "end_of_prompt"

        key_file.write_text("alice not-a-hash\n")
        warning = "the API keys stay as they were"
        wait_until(lambda: is_known(server, new["key"]) and warning in "".join(server.said))
        key_file.unlink()
        wait_until(
            lambda: is_known(server, new["key"]) and "".join(server.said).count(warning) == 2
        )
        time.sleep(1.5)
        assert is_known(server, new["key"]) and not is_known(server, old["key"])
        assert "".join(server.said).count(warning) == 2, "said once of each change"
        write_keys(key_file, keys["bob"])
        wait_until(lambda: not is_known(server, new["key"]))


def test_a_callers_prefixes_are_found_on_disk_after_a_restart_and_by_nobody_else(
    gpt2, keys, key_file, tmp_path
):
    start = [str(gpt2), "--api-keys", str(key_file), "--cache-disk", "64MiB"]
    start += ["--cache-dir", str(tmp_path / "prompts")]
    with Server(*start) as server:
        ask(server.client(keys["alice"]["key"]), cache_salt="one")
        assert server.terminate() == 0
    with Server(*start) as server:
        alice, bob = (server.client(keys[name]["key"]) for name in ("alice", "bob"))
        for stranger, salt in [(bob, "one"), (alice, "two")]:
            seen = verdict(ask(stranger, cache_salt=salt))
            assert seen["stop"]["reason"] == "first_request"
        seen = verdict(ask(alice, cache_salt="one"))
        # Of a model this small, computing may be cheaper than reading; either way it is there.
        assert seen["reused_from"]["disk"] > 0 or seen["stop"]["reason"] == "cheaper_to_compute"


@pytest.mark.parametrize("hungry", ["alice", "bob"])
def test_an_eviction_names_only_a_request_of_the_callers_own(gpt2, keys, key_file, hungry):
    budget = ["--context", "256", "--kv-budget", "192KiB"]
    with Server(str(gpt2), "--api-keys", str(key_file), *budget) as server:
        alice = server.client(keys["alice"]["key"])
        ask(alice)
        others = [ask(server.client(keys[hungry]["key"]), f"{n} " * 100) for n in range(5)]
        stop = verdict(ask(alice))["stop"]
        assert stop["reason"] == "evicted"
        assert stop["held_tokens"] > stop["at"]
        if hungry == "alice":
            assert stop["evicted_for"] in [other.id for other in others]
        else:
            assert "evicted_for" not in stop
