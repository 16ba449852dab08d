"""What a person sees: help, colours, widths, progress, pipes and keys, on a real terminal."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from harness import BINARY, Server, command
from terminal import ESCAPE, Session, columns, environment, lines, on_terminal

COMMANDS = [
    [],
    ["serve"],
    ["run"],
    ["trace"],
    ["pull"],
    ["info"],
    ["tokenize"],
    ["why"],
    ["bench"],
    ["cache"],
    ["cache", "replay"],
    ["cache", "ls"],
    ["cache", "show"],
    ["cache", "pin"],
    ["cache", "unpin"],
    ["cache", "evict"],
    ["cache", "clear"],
    ["cache", "stats"],
    ["cache", "incident"],
    ["check"],
    ["check", "exact"],
    ["check", "article"],
    ["key"],
    ["completions"],
    ["man"],
]
SHELLS = {"bash": ["bash", "-n"], "zsh": ["zsh", "-n"], "fish": ["fish", "--no-execute"]}
REPORTS = [["info"], ["tokenize", "今天 The cat"], ["trace", "-p", "The cat sat on"]]


@pytest.fixture(scope="module")
def requests(tmp_path_factory):
    """Two requests that differ in a time, as the flags of `why`."""
    folder = tmp_path_factory.mktemp("requests")
    system = "You are a helpful agent.\nCurrent time: 10:00:01\nTools: 没有工具. Be brief."
    flags = []
    for flag, text in [("--prompt", system), ("--against", system.replace(":01", ":02"))]:
        path = folder / f"{flag[2:]}.json"
        said = [{"role": "system", "content": text}, {"role": "user", "content": "Why?"}]
        path.write_text(json.dumps({"messages": said}), encoding="utf-8")
        flags += [flag, str(path)]
    return flags


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_is_one_screen_and_long_help_has_examples_first(words):
    short, status = on_terminal(*words, "-h")
    assert status == 0
    assert len(lines(short)) <= 36
    assert [line for line in lines(short) if columns(line) > 80] == []
    assert "Examples:" not in short
    long = command(*words, "--help").stdout
    assert long.isascii()
    assert [line for line in long.splitlines() if columns(line) > 80] == []
    assert long.index("Examples:\n  ") < long.index("Usage: ")
    narrow, _ = on_terminal(*words, "-h", width=60)
    assert [line for line in lines(narrow) if columns(line) > 60] == []
    narrow, _ = on_terminal(*words, "--help", width=60)
    # A word that is longer than the line stays whole, so that it can be copied.
    wide = [line for line in lines(narrow) if columns(line) > 60]
    assert [line for line in wide if len(line.split()) > 4] == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell", "elvish"])
def test_completions_are_what_the_shell_reads(shell, tmp_path):
    script = command("completions", shell).stdout
    assert "kv-budget" in script
    if shell in SHELLS and shutil.which(shell):
        path = tmp_path / "script"
        path.write_text(script, encoding="utf-8")
        subprocess.run([*SHELLS[shell], path], check=True)


def test_bash_completes_commands_and_flags():
    bash = "source <({0} completions bash); COMP_WORDS=(refrain {1}); COMP_CWORD={2}; _refrain"
    bash += ' refrain "{3}" "{4}"; echo "${{COMPREPLY[@]}}"'

    def completed(words: str, index: int, word: str, before: str) -> list[str]:
        script = bash.format(BINARY, words, index, word, before)
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
        return done.stdout.split()

    assert completed("tr", 1, "tr", "refrain") == ["trace"]
    assert "--kv-budget" in completed("serve --kv", 2, "--kv", "serve")
    assert completed("info sm", 2, "sm", "info") == ["smollm2"]


def test_the_manual_has_a_page_for_each_command(tmp_path):
    folder = tmp_path / "man" / "man1"
    command("man", "--dir", str(folder))
    pages = {"-".join(["refrain", *words]) + ".1" for words in COMMANDS}
    assert pages == {path.name for path in folder.iterdir()}
    assert command("man").stdout == (folder / "refrain.1").read_text()
    for path in sorted(folder.iterdir()):
        text = path.read_text()
        assert ".SH EXAMPLES" in text and '.SH "EXIT STATUS"' in text
        if shutil.which("mandoc"):
            subprocess.run(["mandoc", "-T", "lint", "-W", "error", path], check=True)
        if shutil.which("groff"):
            done = subprocess.run(
                ["groff", "-man", "-ww", "-z", path], capture_output=True, text=True, check=True
            )
            assert done.stderr == ""
        if shutil.which("man"):
            shown = subprocess.run(["man", "-l", path], capture_output=True, text=True, check=True)
            assert "EXAMPLES" in shown.stdout
    assert command("man", "trace").stdout == (folder / "refrain-trace.1").read_text()
    assert command("man", "check", "exact").stdout == (folder / "refrain-check-exact.1").read_text()
    assert "serve, run, trace" in command("man", "nope", check=2).stderr
    said = command("man", "--dir", "/proc/nowhere", check=1).stderr
    assert "/proc/nowhere" in said


@pytest.mark.parametrize("width", [60, 80, 120])
def test_reports_keep_to_the_terminals_width(default_model, requests, width):
    for words in [*REPORTS, ["why", *requests]]:
        # The status line and the path of the files may be longer: a terminal breaks them.
        env = environment()
        with Session(*words, "--quiet", width=width, env=env) as session:
            assert session.finish() == 0
            shown = lines(session.screen)
        wide = [line for line in shown if columns(line) > width and "/models/" not in line]
        assert wide == [], words
        assert len(shown) > 3


COLOUR = re.compile(r"\x1b\[[0-9;]*m")
COLOURS = [
    ({}, [], True),
    ({"TERM": "dumb"}, [], False),
    ({"NO_COLOR": "1"}, [], False),
    ({"NO_COLOR": ""}, [], True),
    ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, [], False),
    ({"TERM": "dumb", "CLICOLOR_FORCE": "1"}, [], True),
    ({"TERM": "dumb", "CLICOLOR_FORCE": "0"}, [], False),
    ({"CLICOLOR_FORCE": "0"}, [], True),
    ({"NO_COLOR": "1"}, ["--color", "always"], True),
    ({"FORCE_COLOR": "1"}, ["--color=never"], False),
]


@pytest.mark.parametrize(("variables", "flags", "coloured"), COLOURS)
def test_colours_by_the_rules_on_a_terminal(default_model, variables, flags, coloured):
    env = environment(**variables)
    for words in [["info"], ["info", "--help"], ["info", "--no-such-flag"], ["info", "/nowhere"]]:
        shown, _ = on_terminal(*words, *flags, env=env)
        assert bool(COLOUR.search(shown)) is coloured, (words, shown)


def test_a_pipe_is_not_coloured_unless_asked(default_model):
    def piped(*flags: str, **variables: str) -> str:
        return command("info", *flags, env=environment(**variables)).stdout

    assert not ESCAPE.search(piped())
    for no in ["", "0", "false"]:
        assert not ESCAPE.search(piped(CLICOLOR_FORCE=no))
        assert not ESCAPE.search(command("--help", env=environment(CLICOLOR_FORCE=no)).stdout)
    for coloured in [piped("--color", "always"), piped(FORCE_COLOR="1"), piped(CLICOLOR_FORCE="1")]:
        assert ESCAPE.search(coloured)
        assert ESCAPE.sub("", coloured) == piped()
    # Each stream for itself: the result goes to a pipe, the progress to the terminal.
    reader, writer = os.pipe()
    with Session("run", "-p", "Hi", "--max-tokens", "2", stdout=writer) as session:
        os.close(writer)
        assert session.finish() == 0
        assert ESCAPE.search(session.screen)
    with os.fdopen(reader) as result:
        assert not ESCAPE.search(result.read())


def test_without_utf8_everything_is_ascii(default_model, requests):
    env = environment(LC_ALL="C")
    for words in [["info"], ["trace", "-p", "The cat sat on"], ["why", *requests]]:
        assert command(*words, env=env).stdout.isascii(), words


PIPED = [
    ["info"],
    ["info", "--json"],
    ["trace", "-p", "The cat sat on", "--json"],
    ["tokenize", "Hi there"],
    ["run", "-p", "Count to fifty.", "--max-tokens", "40"],
    ["bench", "-p", "8", "-n", "2", "-r", "1"],
    ["completions", "bash"],
    ["man"],
    ["pull"],
    ["--help"],
    ["trace", "--help"],
]


@pytest.mark.parametrize("words", PIPED, ids=" ".join)
def test_a_reader_that_goes_away_is_no_failure(default_model, words):
    for streams in ["", "2>&1"]:
        script = f'"$0" "$@" {streams} | head -c 1 > /dev/null; echo ${{PIPESTATUS[0]}}'
        done = subprocess.run(
            ["bash", "-c", script, BINARY, *words], capture_output=True, text=True, timeout=120
        )
        assert done.stdout.strip() == "0"
        assert "panicked" not in done.stderr and "error" not in done.stderr
    # Nobody reads at all.
    done = subprocess.run(["bash", "-c", '"$0" "$@" | true; echo ${PIPESTATUS[0]}', BINARY, *words])
    assert done.returncode == 0


def test_a_full_disk_is_a_failure(default_model):
    every = [["--help"], ["trace", "-h"], ["--version"], ["completions", "bash"], ["man"]]
    for words in [["info"], *every]:
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run([BINARY, *words], stdout=full, stderr=subprocess.PIPE, text=True)
        assert done.returncode == 1
        assert "error: No space left" in done.stderr


def test_quiet_says_nothing_but_errors(default_model):
    for words in [["info"], ["run", "-p", "Hi", "--max-tokens", "2"], ["pull"]]:
        assert command(*words, "--quiet").stderr == ""
    assert command("info", "/nowhere", "-q", check=1).stderr.startswith("error: ")


def test_progress_shows_where_it_is_wanted(default_model):
    bar = re.compile(r"Loading.*\[[=> ]+\]|Fetching.*\[[=> ]+\]")

    def shown(*flags: str, **variables: str) -> str:
        return ESCAPE.sub("", on_terminal("pull", *flags, env=environment(**variables))[0])

    assert bar.search(shown())
    assert bar.search(shown("--progress", "always", CI="1"))
    for hidden in [shown("-q"), shown("--progress", "never"), shown(CI="1")]:
        assert not bar.search(hidden)
    assert "[" not in command("pull", "--progress", "always").stderr
    for width in [60, 80]:
        screen, _ = on_terminal("pull", width=width)
        # A line that is wider than the terminal cannot be overwritten.
        states = [
            state for line in ESCAPE.sub("", screen).splitlines() for state in line.split("\r")
        ]
        assert [s for s in states if "Fetching" in s and columns(s.rstrip()) > width] == []


def test_a_log_is_not_silent(default_model):
    """Long work without a bar says every ten seconds how far it is."""
    with subprocess.Popen(
        [BINARY, "check", "exact", "--json"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            started = time.monotonic()
            line = process.stderr.readline()
            assert "Checking" in line and "cells" in line
            assert 9 < time.monotonic() - started < 30
        finally:
            process.kill()


def test_a_wrong_value_names_the_variable_it_comes_from():
    env = environment(REFRAIN_PORT="http")
    said = command("serve", env=env, check=2).stderr
    assert "--port" in said and "REFRAIN_PORT" in said
    said = command("serve", "--port", "https", env=env, check=2).stderr
    assert "https" in said and "REFRAIN_PORT" not in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["serve", "--port", "abc"], "whole number from 0 to 65535"),
        (["trace", "-p", "Hi", "--layer", "-1"], "whole number, 0 or more"),
        (["trace", "-p", "Hi", "--query", "on"], "0 is the first, -1 the last"),
        (["trace", "-p", "Hi", "--tensor", "decode.1.logits"], "add --decode 2"),
        (["run", "-p", "Hi", "--seed", "x"], "whole number, 0 or more"),
        (["bench", "-p", "some"], "whole number, 0 or more"),
        (["bench", "-t", "0"], "from 1 to 1024"),
        (["tokenize", "The", "cat", "sat", "on"], "refrain tokenize 'The cat sat on'"),
        (["why", "a.json", "b.json"], "refrain why --prompt a.json --against b.json"),
        (["run", "-p", ""], "the prompt is empty"),
        (["run", "-p", " \n"], "the prompt is empty"),
        (["run", "--raw", "-p", ""], "the prompt is empty"),
        (["trace", "--chat", "-p", ""], "the prompt is empty"),
        (["trace", "-p", "Hi", "--tensor", "blocks.99.hook_resid_pre"], "its layers are 0 to 29"),
    ],
)
def test_a_wrong_word_is_told_what_is_wanted(words, said):
    error = command(*words, check=2).stderr
    assert said in error
    assert "invalid digit" not in error and "use '--" not in error


def test_a_file_that_is_missing_is_said_in_words(default_model, tmp_path):
    missing = str(tmp_path / "nope.npy")
    of_why = ["why", "--prompt", missing, "--against", missing]
    for words in [
        of_why,
        ["trace", "-p", "Hi", "--tensor", "logits", "--compare", missing],
        ["trace", "-p", "Hi", "--tensor", "logits", "--save", str(tmp_path / "no" / "x.npy")],
    ]:
        error = command(*words, check=1).stderr
        assert "No such file or directory" in error and "os error" not in error, words
    assert "--prompt and --against" in command(*of_why, check=1).stderr


def test_a_text_without_tokens_has_none(default_model):
    done = command("tokenize", "")
    assert (done.stdout, "no tokens" in done.stderr) == ("", True)
    report = json.loads(command("tokenize", "", "--json").stdout)
    assert report["ids"] == report["tokens"] == []


def test_a_text_that_is_taken_for_a_model_is_to_be_quoted():
    error = command("tokenize", "The", "cat's", check=1).stderr
    assert r"refrain tokenize 'The cat'\''s'" in error


def test_a_flag_wins_over_the_environment(default_model):
    def threads(*flags: str, **variables: str) -> int:
        words = ["bench", "-p", "4", "-n", "0", "-r", "1", "--json", *flags]
        report = json.loads(command(*words, env=environment(**variables)).stdout)
        return report["results"][0]["threads"]

    assert threads("--threads", "1") == 1
    words = ["run", "-p", "Hi", "--max-tokens", "1"]
    done = command(*words, env=environment(REFRAIN_THREADS="1"))
    assert "; 1 thread," in done.stderr
    done = command(*words, "-t", "2", env=environment(REFRAIN_THREADS="1"))
    assert "; 2 threads," in done.stderr


def test_an_interrupted_answer_ends_with_130(default_model):
    with Session("run", "-p", "Count from 1 to 1000, please.", "--temperature", "0") as session:
        session.wait_for("Loaded")
        time.sleep(0.1)
        session.type("\x03")
        assert session.finish() == 130
        assert "panicked" not in session.screen


def catches_interruptions(process: subprocess.Popen) -> bool:
    status = Path(f"/proc/{process.pid}/status").read_text()
    caught = int(re.search(r"SigCgt:\s+(\w+)", status).group(1), 16)
    return bool(caught & 1 << signal.SIGINT - 1)


@pytest.mark.parametrize("words", [["check", "exact"], ["check", "article"], ["trace"], ["bench"]])
def test_every_interrupted_command_ends_with_130(default_model, tmp_path, words):
    if words == ["trace"]:
        # Nobody writes to the pipe that it is to read.
        os.mkfifo(tmp_path / "pipe.json")
        words = ["trace", "-p", "Hi", "--compare", str(tmp_path / "pipe.json")]
    process = subprocess.Popen(
        [BINARY, *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    with process:
        while not catches_interruptions(process):
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
    # Not by the signal, which would be -2.
    assert process.returncode == 130
    assert "panicked" not in said


def test_a_chat_on_a_terminal(default_model):
    with Session("run", "--max-tokens", "4", "--temperature", "0") as session:
        session.wait_for("> ")
        session.type("/help\n")
        session.wait_for("another conversation")
        session.type("What is 2+2?\n")
        session.wait_for("reused 0 of")
        session.type("And 3+3?\n")
        # A key that comes before the prompt is another thing: it interrupts the program.
        session.wait_for("end_of_cached")
        session.wait_for("> ", after="end_of_cached")
        session.type("\x03")
        session.wait_for("> ", after="[2mCtrl-D leaves.")
        session.type("\x04")
        assert session.finish() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serve_can_be_ended_as_soon_as_it_listens(default_model, number):
    for _ in range(5):
        with Server() as server:
            server.process.send_signal(number)
            assert server.process.wait(timeout=60) == 0


def test_serve_warns_of_a_budget_beyond_the_machine(default_model):
    (total,) = re.findall(r"MemTotal:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    with Server("--kv-budget", str(int(total) * 1024)) as server:
        said = "".join(server.said)
        assert "Warning" in said and "--kv-budget" in said
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(timeout=60) == 0
    with Server("--kv-budget", "64MiB") as server:
        assert "Warning" not in "".join(server.said)
