"""The example application, as its README says to run it, against the real server."""

import os
import re
import subprocess
import sys
import time

import pytest

from harness import ROOT, Server, command

FOLDER = ROOT / "examples" / "assistant"
PROGRAM = FOLDER / "assistant.py"
REUSED = re.compile(r"^\[reused (\d+) of (\d+) prompt tokens .*, computed (\d+): (.*)\]$", re.M)
ASKED = re.compile(r"^allow (\w+) (\{.*\})\? \[y/N\] ", re.M)


@pytest.fixture
def fresh(default_model):
    """A server that has seen nothing yet."""
    with Server() as running:
        yield running


def start(url: str, notes, key: str = "none", stdout=subprocess.PIPE) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, PROGRAM, "--url", url, "--notes", notes],
        stdin=subprocess.PIPE,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"REFRAIN_API_KEY": key, "PYTHONUNBUFFERED": "1"},
    )


def converse(url: str, notes, *lines: str, key: str = "none", status: int = 0) -> str:
    """What the program prints of a conversation with these lines."""
    program = start(url, notes, key)
    printed, errors = program.communicate("".join(f"{line}\n" for line in lines), timeout=120)
    assert program.returncode == status, errors
    return printed + errors


def reuse(printed: str) -> list[tuple[int, int, str]]:
    """Tokens of each prompt, how many of them were reused, and why not more."""
    found = REUSED.findall(printed)
    for reused, prompt, computed, _ in found:
        assert int(reused) + int(computed) == int(prompt)
    return [(int(prompt), int(reused), why) for reused, prompt, _, why in found]


def test_each_turn_reuses_the_one_before_it(fresh, tmp_path):
    printed = converse(
        fresh.url, tmp_path, "Name a river.", "And a longer one?", "Which of them is in Africa?"
    )
    turns = reuse(printed)
    assert len(turns) == 3, printed
    first, others = turns[0], turns[1:]
    assert first[1:] == (0, "nothing that begins like this is held")
    before = first
    for turn in others:
        assert turn[1] >= before[0], f"the whole prompt before it: {printed}"
        before = turn
    # Instructions and tools are most of it, and nobody pays for them twice.
    assert others[0][1] > 300


def test_another_conversation_reuses_instructions_and_tools(fresh, tmp_path):
    converse(fresh.url, tmp_path, "Name a river.")
    [(prompt, reused, why)] = reuse(converse(fresh.url, tmp_path, "What is a note?"))
    assert reused > 0.8 * prompt
    assert why.startswith("message 1 (user) had "), why


def test_a_change_runs_only_when_the_person_allows_it(fresh, tmp_path):
    for answer, result in [("", "error: the person does not allow this"), ("y", "written")]:
        notes = tmp_path / f"notes{answer}"
        question = "/use write_note Note that the milk is out."
        printed = converse(fresh.url, notes, question, answer)
        [(tool, _)] = ASKED.findall(printed)[:1]
        assert tool == "write_note"
        assert f"<- {result}" in printed
        # The refusal went back to the model, which then said something.
        turns = reuse(printed)
        assert len(turns) >= 2, printed
        assert turns[1][1] >= turns[0][0], "the call's prompt is reused after its result"
        assert [path.suffix for path in notes.glob("*")] == ([".txt"] if answer else [])


def test_what_only_reads_is_not_asked_for(fresh, tmp_path):
    (tmp_path / "milk.txt").write_text("The milk is out.", encoding="utf-8")
    printed = converse(fresh.url, tmp_path, "/use list_notes Which notes are there?")
    assert "<- milk\n" in printed
    assert not re.search(r"allow list_notes", printed)


def test_no_server_and_a_wrong_key_are_told(default_model, tmp_path):
    printed = converse("http://127.0.0.1:9", tmp_path, status=1)
    assert "No server at http://127.0.0.1:9/" in printed
    key = command("key", "alice").stdout
    keys = tmp_path / "keys.txt"
    keys.write_text(key, encoding="utf-8")
    with Server("--api-keys", str(keys)) as server:
        printed = converse(server.url, tmp_path, key="wrong", status=1)
    assert "does not know this key" in printed
    assert "Traceback" not in printed


def test_too_many_requests_are_waited_out(default_model, tmp_path):
    made = command("key", "alice")
    keys = tmp_path / "keys.txt"
    # 30 in a minute: after those at once, one comes every two seconds.
    keys.write_text(made.stdout.rstrip() + " requests=30\n", encoding="utf-8")
    key = re.search(r"\S{20,}", made.stderr)[0]
    with Server("--api-keys", str(keys)) as server:
        with server.http() as http:
            headers = {"authorization": f"Bearer {key}"}
            body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
            statuses = set()
            while 429 not in statuses:
                answer = http.post("/v1/chat/completions", json=body, headers=headers)
                statuses.add(answer.status_code)
        printed = converse(server.url, tmp_path, "Name a river.", key=key)
    assert re.search(r"^.*\(too many requests: waiting \d+ s\)$", printed, re.M), printed
    assert len(reuse(printed)) == 1


def test_a_full_context_forgets_half_and_goes_on(default_model, tmp_path):
    with Server("--context", "700") as server:
        questions = [f"Describe river number {number} in a few words." for number in range(6)]
        printed = converse(server.url, tmp_path, *questions)
        alone = converse(server.url, tmp_path, "word " * 800)
    assert "forgetting the older half" in printed
    assert printed.count("[reused ") == 6, printed
    assert "This question alone is too long" in alone


def test_a_broken_answer_is_no_part_of_the_history(default_model, tmp_path):
    # Slower than it could be, so that it is killed before the call is complete.
    server = Server("--threads", "1", REFRAIN_ISA="avx2").__enter__()
    port = server.url.rsplit(":", 1)[1]
    said = tmp_path / "said.txt"
    with said.open("w", encoding="utf-8") as file:
        program = start(server.url, tmp_path, stdout=file)
    try:
        program.stdin.write("/use write_note Write a note about the rivers of Europe.\n")
        program.stdin.flush()
        until = time.monotonic() + 60
        while "-> " not in said.read_text(encoding="utf-8") and time.monotonic() < until:
            time.sleep(0.001)
    finally:
        server.__exit__()
    with Server("--port", port):
        _, errors = program.communicate("\n", timeout=120)
    printed = said.read_text(encoding="utf-8")
    assert "The answer broke off" in printed, printed + errors
    assert "Traceback" not in errors, errors
    assert reuse(printed), "an empty line asked again"
    assert not ASKED.search(printed.split("broke off")[0]), "half a call was run"


def test_the_client_is_the_one_that_is_tested():
    [line] = (FOLDER / "requirements.txt").read_text(encoding="utf-8").splitlines()
    tested = (ROOT / "tests" / "e2e" / "requirements.txt").read_text(encoding="utf-8")
    assert line in tested.splitlines()
