"""No time that a caller can take, or is told, says what another caller has cached."""

import http.client
import json
import random
import string
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from urllib.parse import urlsplit

import pytest

from harness import Server, command

# Half of them each; the standard error is that of an area of a half (Hanley and McNeil, 1982).
TRIALS = 10_000
STANDARD_ERROR = (2 / 12 / (TRIALS / 2)) ** 0.5
CONTROL_TRIALS = 400
MARGIN = 0.02
PROMPT_TOKENS = 240
VOCABULARY = 50_000
# Of these letters they are about as many tokens.
PROMPT_WORDS, WORD_LETTERS = 40, 7

Prompt = list[int] | str


def random_ids(draw: random.Random) -> Prompt:
    return draw.choices(range(VOCABULARY), k=PROMPT_TOKENS)


def random_text(draw: random.Random) -> Prompt:
    words = (draw.choices(string.ascii_lowercase, k=WORD_LETTERS) for _ in range(PROMPT_WORDS))
    return " ".join("".join(word) for word in words)


class Caller:
    """One connection with one key and one salt, as fast as Python has it."""

    def __init__(self, server: Server, key: str | None, salt: str):
        address = urlsplit(server.url)
        self.connection = http.client.HTTPConnection(address.hostname, address.port)
        self.headers = {"content-type": "application/json"}
        if key:
            self.headers["authorization"] = f"Bearer {key}"
        self.salt = salt

    def body(self, prompt: Prompt) -> bytes:
        return json.dumps({"prompt": prompt, "max_tokens": 1, "cache_salt": self.salt}).encode()

    def times(self, body: bytes) -> dict[str, float]:
        """How long the answer to a request takes, and all that it says of times itself; a time that
        it does not know is less than all others, since that it is not known tells something too."""
        started = time.perf_counter()
        self.connection.request("POST", "/v1/completions", body, self.headers)
        response = self.connection.getresponse()
        answer = response.read()
        took = time.perf_counter() - started
        assert response.status == 200
        told = json.loads(answer)["refrain"]["timings"]
        times = {name: -1 if ms is None else ms for name, ms in told.items()}
        headers = {name: float(value) for name, value in response.getheaders() if "ms" in name}
        return {"response": took} | times | headers

    def clear(self) -> None:
        """Gives up all that this caller has cached."""
        body = json.dumps({"cache_salt": self.salt})
        self.connection.request("POST", "/refrain/cache/clear", body, self.headers)
        response = self.connection.getresponse()
        response.read()
        assert response.status == 200


def area(hits: list[float], others: list[float]) -> float:
    """The chance that a hit takes longer than another, ties counting half: the area under the
    curve of the best classifier that looks at the time alone."""
    ordered = sorted(others)
    below = sum(bisect_left(ordered, hit) + bisect_right(ordered, hit) for hit in hits)
    return below / 2 / len(hits) / len(others)


def measure(
    victim: Caller,
    prober: Caller,
    trials: int,
    prompt: Callable[[random.Random], Prompt],
    clearing: Caller | None = None,
) -> dict[str, float]:
    """The area for each time, over prompts that the victim has just cached and random ones of the
    same length, which `clearing` has just sent and given up."""
    draw = random.Random(trials)
    times: dict[bool, list[dict[str, float]]] = {True: [], False: []}
    # Either comes first in half of the pairs: what comes first may be slower.
    hit_first = [True, False] * (trials // 4)
    draw.shuffle(hit_first)
    for trial, first in enumerate(hit_first):
        cached, fresh = prompt(draw), prompt(draw)
        if clearing:
            # Both look for it where there is nothing: how they search is not to differ.
            victim.salt, clearing.salt = f"victim {trial}", f"clearing {trial}"
        # Written before anything is sent: what this program did just now must not count.
        asked = [(victim, victim.body(cached))]
        if clearing:
            asked.append((clearing, clearing.body(fresh)))
            draw.shuffle(asked)
        probes = [(True, prober.body(cached)), (False, prober.body(fresh))]
        for caller, body in asked:
            caller.times(body)
            if caller is clearing:
                caller.clear()
        for hit, probe in probes if first else reversed(probes):
            times[hit].append(prober.times(probe))
    names = {name for told in times[True] + times[False] for name in told}
    of = {
        hit: {name: [told.get(name, -1) for told in times[hit]] for name in names} for hit in times
    }
    areas = {name: area(of[True][name], of[False][name]) for name in sorted(names)}
    print({name: round(value, 4) for name, value in areas.items()})
    return areas


def assert_nothing_is_told(areas: dict[str, float], margin: float = MARGIN) -> None:
    assert {"response", "queue_ms", "lookup_ms", "prefill_ms", "ttft_ms"} <= areas.keys()
    assert {name: value for name, value in areas.items() if abs(value - 0.5) > margin} == {}


def test_no_time_tells_what_another_key_has_cached(gpt2, tmp_path):
    names = ["alice", "bob"]
    keys = {name: json.loads(command("key", name, "--json").stdout) for name in names}
    path = tmp_path / "keys.txt"
    path.write_text("".join(key["line"] + "\n" for key in keys.values()))
    start = [str(gpt2), "--api-keys", str(path), "--kv-budget", "16MiB", "--quiet"]
    with Server(*start) as server:
        alice, bob, again, carol = (
            Caller(server, keys[name]["key"], "same") for name in [*names, "alice", "alice"]
        )
        # Such a classifier does tell what the caller itself has cached.
        assert measure(alice, again, CONTROL_TRIALS, random_ids)["response"] < 0.45
        times = again.times(again.body([1, 2, 3]))
        assert all(ms == int(ms) for name, ms in times.items() if name != "response")
        assert_nothing_is_told(measure(alice, bob, TRIALS, random_ids, clearing=carol))
        # Of prompts of which nobody has sent one, the other's rows of the embedding are still in
        # the processor's caches, so that this area is not quite a half: beyond the margin is what
        # two standard errors are.
        areas = measure(alice, bob, TRIALS, random_ids)
        assert_nothing_is_told(areas, MARGIN + 2 * STANDARD_ERROR)


@pytest.mark.parametrize("prompt", [random_ids, random_text])
def test_no_time_tells_what_was_cached_with_another_salt(gpt2, prompt):
    """Here the times that an answer tells are as fine as they are measured: what a prompt needs of
    the tokenizer and the embedding, and is in the processor's caches for a while, shows in them.
    So the other prompt was computed just as lately, and is not cached any more."""
    with Server(str(gpt2), "--kv-budget", "16MiB", "--quiet") as server:
        alice, bob, carol = (Caller(server, None, name) for name in ["alice's", "bob's", "carol's"])
        assert_nothing_is_told(measure(alice, bob, TRIALS, prompt, clearing=carol))
