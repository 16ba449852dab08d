"""Runs the binary behind a real pseudo-terminal, as a person sees it."""

import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import termios
import time
import unicodedata

from harness import BINARY

CLEAN = ("NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "FORCE_COLOR", "CI", "LC_ALL", "COLUMNS")
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07")


def environment(**variables: str) -> dict[str, str]:
    """An ordinary terminal's environment, with `variables`."""
    env = {name: value for name, value in os.environ.items() if name not in CLEAN}
    return env | {"TERM": "xterm-256color", "LANG": "C.UTF-8"} | variables


def columns(line: str) -> int:
    """How many columns of a terminal a line takes."""
    wide = [unicodedata.east_asian_width(character) in "WF" for character in line]
    marks = [unicodedata.combining(character) != 0 for character in line]
    return sum(0 if mark else 2 if two else 1 for two, mark in zip(wide, marks, strict=True))


def lines(screen: str) -> list[str]:
    """The lines of what was written, without colours; of an overwritten line, the last state."""
    plain = ESCAPE.sub("", screen).replace("\r\n", "\n")
    return [line.rsplit("\r", 1)[-1] for line in plain.splitlines()]


class Session:
    """A program on a terminal of its own; `stdout` may go elsewhere."""

    def __init__(self, *arguments: str, width: int = 80, env: dict | None = None, stdout=None):
        self.screen = ""
        self._master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))

        def own_terminal() -> None:
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen(
            [BINARY, *arguments],
            stdin=slave,
            stdout=slave if stdout is None else stdout,
            stderr=slave,
            env=environment() if env is None else env,
            preexec_fn=own_terminal,
        )
        os.close(slave)

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._master)

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def wait_for(self, text: str, seconds: float = 60.0, after: str = "") -> str:
        """Reads until `text` is on the screen; with `after`, behind the last of that."""
        end = time.monotonic() + seconds
        while text not in self._behind(after):
            assert self._read(end), f"{text!r} did not come:\n{self.screen}"
        return self.screen

    def finish(self, seconds: float = 120.0) -> int:
        """Reads to the end and returns the exit status, as a shell gives it."""
        end = time.monotonic() + seconds
        while self._read(end):
            pass
        status = self.process.wait(timeout=max(0.1, end - time.monotonic()))
        return 128 - status if status < 0 else status

    def _behind(self, text: str) -> str:
        """What is on the screen behind the last `text`: nothing while that is not there."""
        if not text:
            return self.screen
        _, found, behind = self.screen.rpartition(text)
        return behind if found else ""

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def _read(self, end: float) -> bool:
        if not select.select([self._master], [], [], max(0.0, end - time.monotonic()))[0]:
            return False
        try:
            data = os.read(self._master, 65536)
        except OSError:
            # Linux says so once the other side is closed.
            return False
        self.screen += data.decode(errors="replace")
        return bool(data)


def on_terminal(*arguments: str, width: int = 80, env: dict | None = None) -> tuple[str, int]:
    """What a command shows on a terminal, and its exit status."""
    with Session(*arguments, width=width, env=env) as session:
        status = session.finish()
        return session.screen, status
