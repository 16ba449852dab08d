"""Long runs of the real server under many clients: that its memory stays what it is.

`clients` keeps 64 clients asking for some minutes with a K/V budget that is far too small for all
of them, so that pages are evicted and answers preempted all the time. It samples the metrics and
the resident memory, prints them as a table, and fails if the pages do not add up, if the resident
memory grows, or if the same request is ever answered otherwise. `vanish` sends requests whose
clients go away at random moments, and fails if a second later anything of them is left.
"""

import argparse
import asyncio
import json
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass, field

from harness import Server

PAGE = 16
MIB = 1 << 20
VOCABULARY = 49_000
PATH = "/v1/completions"
# Token ids that any prompt of a soak begins with are one of these families.
FAMILIES = 6
# Resident memory counts as flat if it is not so much above what it was after a fifth of the time.
GROWTH_MIB = 24


class Gone(Exception):
    """The client goes away."""


@dataclass
class Client:
    """Asks over a connection of its own for each request, in raw HTTP."""

    host: str
    port: int
    random: random.Random

    async def ask(self, body: dict, leave_s: float = 1e9, leave_chunks: int = 1 << 30):
        """The status and the lines of the answer, or `Gone` after so many seconds or chunks."""
        reader, writer = await asyncio.open_connection(self.host, self.port)
        self.phase = "before the head"
        try:
            text = json.dumps(body).encode()
            head = f"POST {PATH} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
            writer.write(f"{head}content-length: {len(text)}\r\n\r\n".encode() + text)
            async with asyncio.timeout(leave_s):
                return await self._read(reader, leave_chunks)
        except TimeoutError:
            raise Gone from None
        finally:
            writer.transport.abort()

    async def _read(self, reader, leave_chunks: int) -> tuple[int, list[str]]:
        status = int((await reader.readline()).split()[1])
        self.phase = "before the first chunk"
        lines, chunks = [], 0
        while line := await reader.readline():
            lines.append(line.decode().strip())
            if line.startswith(b"data: {"):
                self.phase = "while streaming"
                chunks += 1
                if chunks >= leave_chunks:
                    raise Gone
        return status, lines


def connect(server: Server, seed: int) -> Client:
    host, port = server.url.removeprefix("http://").split(":")
    return Client(host, int(port), random.Random(seed))


def metrics(http) -> dict[str, int]:
    """All metrics; the text format lists one a line."""
    lines = http.get("/metrics").text.splitlines()
    return {name: int(float(value)) for name, value in map(str.split, lines_of_values(lines))}


def lines_of_values(lines: list[str]) -> list[str]:
    return [line for line in lines if not line.startswith("#")]


def any_request(chance: random.Random) -> dict:
    """A request on one of few prefixes; the same number always makes the same request."""
    number = chance.randrange(400)
    its = random.Random(number)
    family = its.randrange(FAMILIES)
    prefix = [(family * 4099 + 7 * i) % VOCABULARY for i in range(its.choice([40, 200, 600]))]
    tail = [its.randrange(VOCABULARY) for _ in range(its.randrange(1, 80))]
    return {
        "prompt": prefix + tail,
        "max_tokens": its.randrange(1, 200),
        "n": its.choice([1, 1, 1, 2]),
        "temperature": its.choice([0, 1]),
        "seed": number,
        "ignore_eos": True,
        "priority": its.randrange(-1, 2),
        "stream": its.random() < 0.7,
        "cache_prompt": its.random() < 0.9,
    }


def texts(body: dict, lines: list[str]) -> list[str]:
    """The answers, by their index."""
    answers = [""] * body["n"]
    if body["stream"]:
        chunks = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    else:
        chunks = [json.loads(line) for line in lines if line.startswith("{")]
    for chunk in chunks:
        for choice in chunk["choices"]:
            answers[choice["index"]] += choice["text"]
    return answers


@dataclass
class Tally:
    """What the clients of a soak have seen."""

    answered: int = 0
    left: int = 0
    refused: int = 0
    wrong: list[str] = field(default_factory=list)
    answers: dict[int, list[str]] = field(default_factory=dict)
    compared: int = 0

    def note(self, body: dict, status: int, lines: list[str]) -> None:
        if status == 429:
            self.refused += 1
            return
        if status != 200 or any('"error"' in line for line in lines):
            self.wrong.append(f"status {status}: {lines[-1][:200] if lines else ''}")
            return
        self.answered += 1
        answer = texts(body, lines)
        known = self.answers.setdefault(body["seed"], answer)
        self.compared += known is not answer
        if known != answer:
            self.wrong.append(f"request {body['seed']} was answered otherwise before")


async def keep_asking(client: Client, tally: Tally, until: float) -> None:
    while time.monotonic() < until:
        body = any_request(client.random)
        leaves = client.random.random() < 0.1
        try:
            leave_s = client.random.random() if leaves else 1e9
            tally.note(body, *await client.ask(body, leave_s=leave_s))
        except Gone:
            tally.left += 1


def sample(server: Server, http, tally: Tally, started: float) -> dict:
    seen = metrics(http)
    return {
        "s": round(time.monotonic() - started),
        "answered": tally.answered,
        "running": seen["refrain_requests_running"],
        "waiting": seen["refrain_requests_waiting"],
        "in use": seen["refrain_kv_pages_in_use"],
        "shared": seen["refrain_kv_pages_shared"],
        "cached": seen["refrain_prompt_cache_pages"],
        "free": seen["refrain_kv_pages_free"],
        "pages": seen["refrain_kv_pages"],
        "preempted": seen["refrain_preemptions_total"],
        "resident MiB": round(server.resident_bytes() / MIB, 1),
    }


def faults(rows: list[dict]) -> list[str]:
    """What is wrong with the samples."""
    found = []
    for row in rows:
        held = row["pages"] - row["free"]
        if not max(row["in use"], row["cached"]) <= held <= row["in use"] + row["cached"]:
            found.append(f"after {row['s']} s the pages do not add up: {row}")
        if row["shared"] > row["in use"]:
            found.append(f"after {row['s']} s more is shared than in use: {row}")
    settled, end = rows[len(rows) // 5]["resident MiB"], rows[-1]["resident MiB"]
    if end > settled + GROWTH_MIB:
        found.append(f"resident memory grew from {settled} to {end} MiB")
    return found


async def soak_clients(options: argparse.Namespace) -> list[str]:
    tally, rows = Tally(), []
    arguments = ["--kv-budget", f"{options.kv_mib}MiB", *options.model]
    with Server(*arguments) as server, server.http() as http:
        started = time.monotonic()
        until = started + options.minutes * 60
        clients = [connect(server, seed) for seed in range(options.clients)]
        tasks = [asyncio.create_task(keep_asking(each, tally, until)) for each in clients]
        while time.monotonic() < until:
            await asyncio.sleep(options.minutes * 60 / 20)
            rows.append(await asyncio.to_thread(sample, server, http, tally, started))
            if len(rows) == 1:
                print("".join(f"{name:>13}" for name in rows[0]))
            print("".join(f"{value:>13}" for value in rows[-1].values()), flush=True)
        await asyncio.gather(*tasks)
        wrong = tally.wrong + faults(rows) + await left_over(http)
    print(
        f"{tally.answered} answered ({tally.compared} of them compared with the same before), "
        f"{tally.left} left, {tally.refused} refused by a full queue"
    )
    return wrong if tally.answered else ["nothing was answered"]


async def left_over(http) -> list[str]:
    """What is left a second after the last client went."""
    gone = time.monotonic()
    while True:
        seen = await asyncio.to_thread(metrics, http)
        busy = seen["refrain_requests_running"] + seen["refrain_requests_waiting"]
        kept = seen["refrain_kv_pages_free"] + seen["refrain_prompt_cache_pages"]
        clean = not busy and not seen["refrain_kv_pages_in_use"]
        clean = clean and kept == seen["refrain_kv_pages"]
        after_s = time.monotonic() - gone
        if clean and after_s < 1:
            print(f"nothing is left after {after_s * 1e3:.0f} ms")
            return []
        if after_s >= 1:
            return [f"a second later something is left: {seen}"]
        await asyncio.sleep(0.01)


async def vanish(client: Client, many: asyncio.Semaphore, phases: Counter) -> None:
    """Asks, and goes at a random moment: by the clock, or at one of the chunks."""
    body = any_request(client.random) | {"stream": True}
    by_clock = client.random.random() < 0.6
    leave_s = client.random.random() ** 3 * 2 if by_clock else 1e9
    leave_chunks = 1 << 30 if by_clock else client.random.randrange(1, 20)
    async with many:
        try:
            await client.ask(body, leave_s, leave_chunks)
            phases["not at all"] += 1
        except Gone:
            phases[client.phase] += 1


async def soak_vanish(options: argparse.Namespace) -> list[str]:
    phases, many = Counter(), asyncio.Semaphore(options.clients)
    arguments = ["--kv-budget", f"{options.kv_mib}MiB", *options.model]
    with Server(*arguments) as server, server.http() as http:
        clients = [connect(server, seed) for seed in range(options.requests)]
        await asyncio.gather(*(vanish(client, many, phases) for client in clients))
        wrong = await left_over(http)
        seen = await asyncio.to_thread(metrics, http)
    print(f"{options.requests} requests; their clients went {dict(phases)}")
    print(f"{seen['refrain_requests_cancelled_total']} were cancelled in the engine")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(prog="cargo xtask soak", description=__doc__)
    parser.add_argument("soak", choices=["clients", "vanish"])
    parser.add_argument("model", nargs="*", help="what to serve, and more flags of the server")
    parser.add_argument("--minutes", type=float, default=10, help="of clients")
    parser.add_argument("--clients", type=int, default=64, help="at the same time")
    parser.add_argument("--requests", type=int, default=1000, help="of vanish")
    parser.add_argument("--kv-mib", type=int, default=64, help="memory for K/V")
    options = parser.parse_args()
    soak = {"clients": soak_clients, "vanish": soak_vanish}[options.soak]
    wrong = asyncio.run(soak(options))
    for text in wrong[:20]:
        print(f"wrong: {text}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
