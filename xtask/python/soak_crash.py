"""Kills the server again and again while it writes the prompt cache to disk.

Each round starts a server on the same directory, asks some of a fixed set of prompts at once, and
kills the server at a random moment. Every answer is compared, token by token and logarithm by
logarithm, with that of a server that keeps nothing. In some rounds the files are damaged between
kill and start: cut short, bits flipped, deleted, or joined by files of somebody else. It fails if a
server takes longer than two seconds to start, if an answer differs, or if pages are missing that
were on disk before the kill.
"""

import argparse
import random
import re
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from harness import Server

START_S_MAX = 2.0
VOCABULARY = 49_000
PROMPTS = 16
CLIENTS = 3
ANSWER_TOKENS = 4


def prompts(seed: int) -> list[list[int]]:
    """Prompts of up to some hundred tokens, many of which begin alike."""
    chance = random.Random(seed)
    beginnings = [[chance.randrange(VOCABULARY) for _ in range(200)] for _ in range(4)]

    def one() -> list[int]:
        shared = chance.choice(beginnings)[: chance.randrange(16, 200)]
        return shared + [chance.randrange(VOCABULARY) for _ in range(chance.randrange(1, 120))]

    return [one() for _ in range(PROMPTS)]


def ask(http, prompt: list[int]) -> tuple[list, dict]:
    """The answer's tokens with their logarithms, and the verdict."""
    body = {
        "prompt": prompt,
        "max_tokens": ANSWER_TOKENS,
        "temperature": 0,
        "ignore_eos": True,
        "logprobs": 1,
    }
    answer = http.post("/v1/completions", json=body).raise_for_status().json()
    logprobs = answer["choices"][0]["logprobs"]
    drawn = list(zip(logprobs["tokens"], logprobs["token_logprobs"], strict=True))
    return drawn, answer["refrain"]["verdict"]


def pages_on_disk(http) -> int:
    text = http.get("/metrics").text
    return int(re.search(r"^refrain_disk_pages (\d+)$", text, re.MULTILINE).group(1))


def damage(folder: Path, chance: random.Random) -> str:
    """Does something to the files that no server would."""
    segments = sorted(folder.glob("*.segment"))
    kind = chance.choice(["cut", "flip", "delete", "foreign"])
    if kind == "foreign" or not segments:
        name = chance.choice(["notes.txt", f"{chance.randrange(1 << 128):032x}.segment"])
        (folder / name).write_bytes(chance.randbytes(chance.randrange(100_000)))
        return "foreign"
    segment = chance.choice(segments)
    content = bytearray(segment.read_bytes())
    if kind == "delete" or not content:
        segment.unlink()
    elif kind == "cut":
        segment.write_bytes(content[: chance.randrange(len(content))])
    else:
        for _ in range(chance.randrange(1, 50)):
            content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        segment.write_bytes(content)
    return kind


class Round:
    """One life of a server."""

    def __init__(self, options, folder: Path, expected: list, chance: random.Random):
        self.options, self.folder = options, folder
        self.expected, self.chance = expected, chance
        self.tally: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.pages = 0

    def client(self, server: Server, seed: int) -> None:
        chance = random.Random(seed)
        with server.http() as http:
            # Until the server is killed.
            while True:
                index = chance.randrange(PROMPTS)
                prompt, wanted = self.expected[index]
                try:
                    drawn, seen = ask(http, prompt)
                    self.pages = max(self.pages, pages_on_disk(http))
                except Exception:
                    if server.process.poll() is None and not self.killed:
                        self.wrong.append("a request failed before the server was killed")
                    return
                self.tally["answers"] += 1
                self.tally["from disk"] += seen["reused_from"]["disk"]
                if drawn != wanted:
                    self.wrong.append(f"prompt {index} was answered otherwise, with {seen}")

    def run(self, pages_before: int) -> None:
        self.killed = False
        arguments = ["--cache-dir", str(self.folder), "--cache-disk", self.options.budget]
        server = Server(*arguments, *self.options.model)
        with server:
            started_s = time.monotonic() - server.started
            self.tally["slowest start, ms"] = int(started_s * 1e3)
            if started_s > START_S_MAX:
                self.wrong.append(f"the server took {started_s:.1f} s to start")
            with server.http() as http:
                found = pages_on_disk(http)
            if found < pages_before:
                self.wrong.append(f"{pages_before} pages were on disk, and {found} were found")
            seeds = [self.chance.randrange(1 << 32) for _ in range(CLIENTS)]
            clients = [threading.Thread(target=self.client, args=(server, seed)) for seed in seeds]
            for client in clients:
                client.start()
            time.sleep(self.chance.random() ** 2 * self.options.seconds)
            self.killed = True
            server.process.kill()
            for client in clients:
                client.join()


def main() -> int:
    parser = argparse.ArgumentParser(prog="cargo xtask soak crash", description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=3.0, help="of a server's life, at most")
    parser.add_argument("--budget", default="1GiB", help="of the directory")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("model", nargs="*", help="flags and model of the server")
    options = parser.parse_args(sys.argv[2:])
    chance = random.Random(options.seed)
    with Server("--no-prompt-cache", *options.model) as server, server.http() as http:
        expected = [(prompt, ask(http, prompt)[0]) for prompt in prompts(options.seed)]
    folder = Path(tempfile.mkdtemp(prefix="refrain-crash-")) / "prompts"
    tally, wrong, pages, slowest = Counter(), [], 0, 0
    for kill in range(options.kills):
        life = Round(options, folder, expected, chance)
        life.run(pages)
        pages = life.pages
        slowest = max(slowest, life.tally.pop("slowest start, ms"))
        tally += life.tally
        wrong += life.wrong
        if chance.random() < 0.3:
            tally[f"files {damage(folder, chance)}"] += 1
            pages = 0
        if kill % 20 == 19:
            print(f"{kill + 1} kills, {dict(tally)}, slowest start {slowest} ms", flush=True)
    shutil.rmtree(folder.parent, ignore_errors=True)
    for line in wrong:
        print(f"wrong: {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
