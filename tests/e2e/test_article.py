"""`refrain check article`: the article's checklist, on a random model of DistilGPT-2's shape."""

import os
import re
import select
import subprocess

from harness import BINARY, command, document
from models import LAYERS

# A row's number, its needs, and what became of it.
ROW = re.compile(r"^ *(\d+) ([WTCRSDX-]+) +(ok|not ok|not run) ")


def test_only_rows_for_real_weights_and_readers_are_left(distilgpt2):
    done = command("check", "article", str(distilgpt2))
    lines = done.stdout.splitlines()
    rows = [found.groups() for line in lines if (found := ROW.match(line))]
    assert [int(number) for number, _, _ in rows] == list(range(1, 186))
    assert [row for row in rows if row[2] == "not ok"] == []
    assert [row for row in rows if row[2] == "not run" and not set(row[1]) <= set("WD")] == []
    assert sum(line.startswith("noticed ") for line in lines) == 5
    said = " ".join(done.stdout.split())
    assert re.search(r"of 185 rows .* need a reader, \d+ need DistilGPT-2's real weights$", said)
    assert [line for line in lines if len(line) > 80] == []
    assert "Checking" in done.stderr


def test_the_document_says_what_was_seen_and_what_was_noticed(distilgpt2):
    report = document("check", "article", str(distilgpt2), "--quiet")
    assert (report["schema"], report["passed"]) == ("refrain.article/1", True)
    assert [row["row"] for row in report["rows"]] == list(range(1, 186))
    assert [section["letter"] for section in report["sections"]] == list("ABCDEFGHIJKLMNO")
    for row in report["rows"]:
        match row["outcome"]:
            case "ok":
                assert row["found"]
                assert row["comparisons"] > 0
            case "not_run":
                assert row["reason"]
                assert set(row["needs"]) <= set("WD")
            case other:
                raise AssertionError(f"row {row['row']} is {other}")
    assert report["totals"]["ok"] == sum(row["outcome"] == "ok" for row in report["rows"])
    assert [test["caught"] for test in report["self_tests"]] == [True] * 5


def test_weights_that_are_not_distilgpt2s_are_told_from_them(gpt2, distilgpt2):
    done = command("check", "article", str(gpt2), "--distilgpt2", str(distilgpt2), check=3)
    rows = [found.groups() for line in done.stdout.splitlines() if (found := ROW.match(line))]
    assert [int(number) for number, _, what in rows if what == "not ok"] == [30, 71, 72, 101, 103]
    assert "NOT ok" in done.stdout


def test_sections_come_as_they_are_checked(gpt2):
    """The first section is there, in a pipe too, before the self-test has begun."""
    with subprocess.Popen(
        [BINARY, "check", "article", str(gpt2)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        seen = b""
        while b"\nB Tokens" not in seen:
            assert select.select([process.stdout], [], [], 300)[0]
            part = os.read(process.stdout.fileno(), 65536)
            assert part, seen.decode()
            seen += part
        assert b"Self-test" not in seen
        process.kill()


def test_what_another_model_does_is_said_and_nothing_is_cut(default_model):
    text = command("check", "article").stdout
    for letter in "CTRSXWD-":
        assert re.search(rf"^{letter} +[nt]\w", text, re.MULTILINE), letter
    for row in [11, 36, 37, 38, 48, 58, 60]:
        assert re.search(rf"^ *{row} \S+ +ok here: ", text, re.MULTILINE), row
    said = " ".join(text.split())
    assert "ok here: RMS norm" in said and "no mean, no bias" in said
    # An ellipsis is only in the claims that have one.
    assert text.count("…") == 1
    for section in text.split("\n\n"):
        assert section.count("the model is a llama") <= 1
    assert text.count("noticed  ") == 5 and "each must be noticed" in text


def test_a_model_of_another_shape_is_refused_as_distilgpt2(gpt2):
    done = command("check", "article", str(gpt2), "--distilgpt2", str(gpt2), check=1)
    assert done.stdout == ""
    assert f"{gpt2} is not DistilGPT-2: the model has {LAYERS} layers, not 6" in done.stderr
