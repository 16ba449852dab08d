"""Starts the real binary, and talks to it as clients do."""

import json
import os
import re
import signal
import subprocess
import threading
import time
import unicodedata
from pathlib import Path

import httpx2
import openai

ROOT = Path(__file__).parents[2]
BINARY = Path(os.environ.get("REFRAIN_BINARY", ROOT / "target" / "release" / "refrain"))
LISTENING = re.compile(r"listening on (https?://\S+:\d+)")
START_SECONDS = 120.0
# What one server has kept is not to be found by the next, unless a test says so.
os.environ.setdefault("REFRAIN_CACHE_DISK", "0")


class Server:
    """`refrain serve` on a free port, if `arguments` name none; a context manager that kills it.
    `environment` is added to this process's own."""

    def __init__(self, *arguments: str, **environment: str):
        self.started = time.monotonic()
        self.said: list[str] = []
        self._listening = threading.Event()
        self.url = ""
        self.process = subprocess.Popen(
            [BINARY, "serve", *arguments, *([] if "--port" in arguments else ["--port", "0"])],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | environment,
        )
        self._reader = threading.Thread(target=self._read_stderr, daemon=True)
        self._reader.start()

    def _read_stderr(self) -> None:
        for line in self.process.stderr:
            self.said.append(line)
            if found := LISTENING.search(line):
                self.url = found.group(1)
                self._listening.set()
        self._listening.set()

    def __enter__(self) -> "Server":
        self._listening.wait(START_SECONDS)
        if not self.url:
            self.process.kill()
            raise AssertionError(f"the server did not start: {''.join(self.said)}")
        return self

    def __exit__(self, *_) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()

    def client(self, key: str = "none", strict: bool = False) -> openai.OpenAI:
        """The official client; it must not hide a failure by trying again. A `strict` one fails on
        answers that are not of the shape that it knows."""
        return openai.OpenAI(
            base_url=f"{self.url}/v1",
            api_key=key,
            max_retries=0,
            timeout=60,
            _strict_response_validation=strict,
        )

    def http(self) -> httpx2.Client:
        """A plain client, for what the official one cannot say."""
        return httpx2.Client(base_url=self.url, timeout=60)

    def terminate(self) -> int:
        """Asks it to stop and returns its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)

    def resident_bytes(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status).group(1)) * 1024

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def command(*arguments: str, check: int | None = 0, **options) -> subprocess.CompletedProcess:
    """Runs `refrain` with `arguments`, and checks its exit status unless `check` is None."""
    done = subprocess.run(
        [BINARY, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
        **options,
    )
    if check is not None:
        assert done.returncode == check, f"{arguments}: {done.returncode}\n{done.stderr}"
    return done


def document(*arguments: str) -> dict:
    """What a command prints with `--json`."""
    return json.loads(command(*arguments, "--json").stdout)


def columns(line: str) -> int:
    """How many columns of a terminal a line takes."""
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in line)


def verdict(answer) -> dict:
    """The verdict of an answer or of a stream's last chunk."""
    return answer.model_extra["refrain"]["verdict"]


def text_of(chunks) -> str:
    """The fragments of a streamed chat answer, joined."""
    return "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
