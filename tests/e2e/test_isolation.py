"""Nobody can tell by the time of an answer what another caller has cached."""

import http.client
import json
import random
import time
from bisect import bisect_left, bisect_right
from collections import defaultdict
from urllib.parse import urlsplit

from harness import Server, command

# Half of them each; the standard error of the area is then 0.006.
TRIALS = 10_000
CONTROL_TRIALS = 400
PROMPT_TOKENS = 240
VOCABULARY = 50_000


class Caller:
    """One connection with one key and one salt, as fast as Python has it."""

    def __init__(self, server: Server, key: str | None, salt: str):
        address = urlsplit(server.url)
        self.connection = http.client.HTTPConnection(address.hostname, address.port)
        self.headers = {"content-type": "application/json"}
        if key:
            self.headers["authorization"] = f"Bearer {key}"
        self.salt = salt

    def body(self, prompt: list[int]) -> bytes:
        return json.dumps({"prompt": prompt, "max_tokens": 1, "cache_salt": self.salt}).encode()

    def times(self, body: bytes) -> dict[str, float]:
        """How long the answer to a request takes, and all that it says of times itself."""
        started = time.perf_counter()
        self.connection.request("POST", "/v1/completions", body, self.headers)
        response = self.connection.getresponse()
        answer = response.read()
        took = time.perf_counter() - started
        assert response.status == 200
        told = json.loads(answer)["refrain"]["timings"]
        times = {"response": took} | {name: ms for name, ms in told.items() if ms is not None}
        return times | {name: float(value) for name, value in response.getheaders() if "ms" in name}


def area(hits: list[float], others: list[float]) -> float:
    """The chance that a hit takes longer than another, ties counting half: the area under the
    curve of the best classifier that looks at the time alone."""
    ordered = sorted(others)
    below = sum(bisect_left(ordered, hit) + bisect_right(ordered, hit) for hit in hits)
    return below / 2 / len(hits) / len(others)


def measure(victim: Caller, prober: Caller, trials: int) -> dict[str, float]:
    """The area for each time, over prompts that the victim has just cached and random ones of the
    same length."""
    draw = random.Random(trials)
    times = {True: defaultdict(list), False: defaultdict(list)}
    # Either comes first in half of the pairs: what comes first may be slower.
    hit_first = [True, False] * (trials // 4)
    draw.shuffle(hit_first)
    for first in hit_first:
        cached, fresh = (draw.choices(range(VOCABULARY), k=PROMPT_TOKENS) for _ in range(2))
        # Written before anything is sent: what this program did just now must not count.
        asked = victim.body(cached)
        probes = [(True, prober.body(cached)), (False, prober.body(fresh))]
        victim.times(asked)
        for hit, probe in probes if first else reversed(probes):
            for name, value in prober.times(probe).items():
                times[hit][name].append(value)
    areas = {name: area(times[True][name], times[False][name]) for name in times[True]}
    print({name: round(value, 4) for name, value in areas.items()})
    return areas


def assert_equal(areas: dict[str, float]) -> None:
    assert {"response", "queue_ms", "lookup_ms", "prefill_ms", "ttft_ms"} <= areas.keys()
    assert {name: value for name, value in areas.items() if abs(value - 0.5) > 0.02} == {}


def test_no_time_tells_what_another_caller_has_cached(gpt2, tmp_path):
    names = ["alice", "bob"]
    keys = {name: json.loads(command("key", name, "--json").stdout) for name in names}
    path = tmp_path / "keys.txt"
    path.write_text("".join(key["line"] + "\n" for key in keys.values()))
    start = [str(gpt2), "--api-keys", str(path), "--kv-budget", "16MiB", "--quiet"]
    with Server(*start) as server:
        alice, bob, again = (
            Caller(server, keys[name]["key"], "same") for name in [*names, "alice"]
        )
        # Such a classifier does tell what the caller itself has cached.
        assert measure(alice, again, CONTROL_TRIALS)["response"] < 0.45
        times = again.times(again.body([1, 2, 3]))
        assert all(ms == int(ms) for name, ms in times.items() if name != "response")
        assert_equal(measure(alice, bob, TRIALS))


def test_no_time_tells_what_was_cached_with_another_salt(gpt2):
    """Here the times that an answer tells are as fine as they are measured."""
    with Server(str(gpt2), "--kv-budget", "16MiB", "--quiet") as server:
        alice, bob = (Caller(server, None, salt) for salt in ["alice's", "bob's"])
        assert_equal(measure(alice, bob, TRIALS))
