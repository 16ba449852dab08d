"""`refrain trace` on terminals of several widths, locales and colours."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios

import pytest

from harness import BINARY, columns, command

ESCAPE = re.compile(r"\x1b\[[\d;]*[A-Za-z]")
PROMPT = "The cat sat on"
CHINESE = "今天天气怎么样？"
PLAIN = {
    name: value
    for name, value in os.environ.items()
    if name not in ("NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "FORCE_COLOR")
}
TERMINAL = {**PLAIN, "LC_ALL": "C.UTF-8", "TERM": "xterm-256color"}


def on_terminal(width: int, *arguments: str, env: dict = TERMINAL) -> list[str]:
    """The lines that `refrain trace` prints on a terminal of `width` columns and 60 lines."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 60, width, 0, 0))
    process = subprocess.Popen(
        [BINARY, "--quiet", "trace", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=subprocess.PIPE,
        env=env,
    )
    os.close(theirs)
    output = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # Nobody has the other end any more.
            break
        if not part:
            break
        output += part
    os.close(ours)
    said = process.stderr.read().decode()
    process.stderr.close()
    assert process.wait(timeout=60) == 0, said
    return output.decode().replace("\r\n", "\n").splitlines()


def bare(lines: list[str]) -> list[str]:
    return [ESCAPE.sub("", line) for line in lines]


def test_the_prompt_fits_a_terminal_of_80_by_60(default_model):
    for options in ([], ["--decode", "1"]):
        lines = on_terminal(80, "-p", PROMPT, *options)
        assert len(lines) <= 60
        assert max(columns(line) for line in bare(lines)) <= 80
        assert any("\x1b[" in line for line in lines)


@pytest.mark.parametrize("width", [40, 60, 80, 120])
@pytest.mark.parametrize("options", [[], ["--explain"], ["--explain", "--lang", "zh"]])
def test_nothing_is_wider_than_the_terminal_or_cut(default_model, width, options):
    more = ["--rows", "--decode", "1"]
    lines = bare(on_terminal(width, "-p", PROMPT, *more, *options))
    assert [line for line in lines if columns(line) > width] == []
    # A mark of something left out stands only behind numbers, of which more were never promised,
    # and in lists, before how many more there are.
    cut = [line for line in lines if line.endswith("…")]
    assert all(re.search(r"\d …$", line) for line in cut), cut
    assert "token-layer evaluations: 30; without the cache 150" in " ".join(" ".join(lines).split())
    # A token is not broken at its space.
    assert not any(line.rstrip().endswith(" '") for line in lines)


def test_chinese_is_as_wide_as_it_looks(default_model):
    for width in (60, 80):
        options = ["--explain", "--lang", "zh", "--rows", "--decode", "1"]
        lines = bare(on_terminal(width, "-p", CHINESE, *options))
        assert [line for line in lines if columns(line) > width] == []
        # Punctuation never begins a line, and partial characters are shown as their bytes.
        assert not any(line.strip().startswith(tuple("，。、；：？！）")) for line in lines)
        assert r"'\xe4\xbb'" in "\n".join(lines)
        # The shapes end at the right edge, whatever stands before them.
        shapes = [line for line in lines if re.match(r"[ \d]\d \w.*, \d+\)$", line)]
        assert len(shapes) > 12
        assert {columns(line) for line in shapes} == {width}


def test_colours_are_for_terminals_that_want_them(default_model):
    assert "\x1b" not in "".join(on_terminal(80, "-p", PROMPT, env={**TERMINAL, "NO_COLOR": "1"}))
    assert "\x1b" not in "".join(on_terminal(80, "-p", PROMPT, env={**TERMINAL, "TERM": "dumb"}))
    piped = command("trace", "-p", PROMPT, env=TERMINAL).stdout
    assert "\x1b" not in piped
    assert piped.splitlines() == bare(on_terminal(80, "-p", PROMPT))


def test_without_utf8_a_terminal_gets_ascii(default_model):
    for options in (["-p", PROMPT], ["-p", CHINESE, "--explain", "--lang", "zh", "--rows"]):
        lines = on_terminal(80, *options, env={**TERMINAL, "LC_ALL": "C"})
        text = "\n".join(lines)
        assert text.isascii()
        assert "sqrt(64)" in text
        assert "##" in text
        assert max(columns(line) for line in bare(lines)) <= 80
