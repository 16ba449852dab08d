"""Nobody can tell by the time of an answer what another caller has cached."""

import http.client
import json
import random
import time
from bisect import bisect_left, bisect_right
from urllib.parse import urlsplit

from harness import Server, command

# Half of them each; the standard error of the area is then 0.006.
TRIALS = 10_000
CONTROL_TRIALS = 400
PROMPT_TOKENS = 240
VOCABULARY = 50_000


class Caller:
    """One connection with one key, as fast as Python has it."""

    def __init__(self, server: Server, key: str):
        address = urlsplit(server.url)
        self.connection = http.client.HTTPConnection(address.hostname, address.port)
        self.headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}

    def seconds(self, body: bytes) -> float:
        """How long the answer to a request takes."""
        started = time.perf_counter()
        self.connection.request("POST", "/v1/completions", body, self.headers)
        response = self.connection.getresponse()
        response.read()
        took = time.perf_counter() - started
        assert response.status == 200
        return took


def body(prompt: list[int]) -> bytes:
    return json.dumps({"prompt": prompt, "max_tokens": 1, "cache_salt": "same"}).encode()


def area(hits: list[float], others: list[float]) -> float:
    """The chance that a hit takes longer than another, ties counting half: the area under the
    curve of the best classifier that looks at the time alone."""
    ordered = sorted(others)
    below = sum(bisect_left(ordered, hit) + bisect_right(ordered, hit) for hit in hits)
    return below / 2 / len(hits) / len(others)


def measure(victim: Caller, prober: Caller, trials: int) -> float:
    """The area, over prompts that the victim has just cached and others that nobody
    has sent."""
    draw = random.Random(trials)
    times: dict[bool, list[float]] = {True: [], False: []}
    # Either comes first in half of the pairs: what comes first may be slower.
    hit_first = [True, False] * (trials // 4)
    draw.shuffle(hit_first)
    for first in hit_first:
        cached = draw.choices(range(VOCABULARY), k=PROMPT_TOKENS)
        # Of the same tokens: the processor's caches still have the rows of their embeddings from
        # the victim's request, whatever the prompt cache does.
        fresh = draw.sample(cached, k=PROMPT_TOKENS)
        # Written before anything is sent: what this program did just now must not count.
        bodies = [body(cached), body(cached), body(fresh)]
        victim.seconds(bodies[0])
        probes = [(True, bodies[1]), (False, bodies[2])]
        for hit, probe in probes if first else reversed(probes):
            times[hit].append(prober.seconds(probe))
    return area(times[True], times[False])


def test_the_time_of_an_answer_does_not_tell_what_another_caller_has_cached(gpt2, tmp_path):
    names = ["alice", "bob"]
    keys = {name: json.loads(command("key", name, "--json").stdout) for name in names}
    path = tmp_path / "keys.txt"
    path.write_text("".join(key["line"] + "\n" for key in keys.values()))
    start = [str(gpt2), "--api-keys", str(path), "--kv-budget", "16MiB", "--quiet"]
    with Server(*start) as server:
        alice, bob, again = (Caller(server, keys[name]["key"]) for name in [*names, "alice"])
        # Such a classifier does tell what the caller itself has cached.
        assert measure(alice, again, CONTROL_TRIALS) < 0.45
        assert abs(measure(alice, bob, TRIALS) - 0.5) <= 0.02
