"""The documents say what the program prints, and in both languages the same."""

import json
import re

import pytest

from documents import (
    DOCUMENTS,
    HEADING,
    PAIR,
    blocks,
    can_run,
    differences,
    of_model,
    run,
    section,
    server_for,
)
from harness import ROOT, Server, document

# A step of a trace: its number and its name.
STEP = re.compile(r"^ *\d+ (\w+(?: \w+)*)  ")
EXTENSION = re.compile(r'^```json\n(\{\n  "refrain".*?)^```$', re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_block_is_what_the_command_prints(default_model, name):
    found = blocks(name)
    assert found, f"{name} has no console block"
    server = server_for(found)
    stale = []
    if server is not None:
        server.__enter__()
    try:
        for block in filter(can_run, found):
            for difference in differences(block.output, run(block, server)):
                stale.append(f"{name}:{block.line}\n{difference}")
    finally:
        if server is not None:
            server.__exit__()
    assert not stale, "\n".join([*stale, "`cargo xtask docs` writes them anew"])


def test_both_languages_carry_the_same_blocks():
    for names in [PAIR, ("README.md", "README.zh-CN.md")]:
        left, right = ([(one.command, one.output) for one in blocks(name)] for name in names)
        assert left == right


def test_the_tour_can_be_taken_with_distilgpt2s_shape(distilgpt2):
    without_chat = [(one, of_model(one, distilgpt2)) for one in blocks(PAIR[0])]
    needs_chat = {section(one)[0] for one, other in without_chat if other is None}
    # O's is the check of the article, which has tests of its own.
    assert needs_chat == {"L", "M", "O"}
    for written, block in without_chat:
        if block is None:
            continue
        printed = run(block, None)
        assert printed.strip(), block.command
        if step := STEP.match(written.output):
            assert STEP.match(printed)[1] == step[1], block.command


def test_the_readmes_answer_is_the_servers(default_model):
    with Server() as server, server.http() as http:
        for request in ["first", "second"]:
            body = json.loads((ROOT / "docs" / "requests" / f"{request}.json").read_text())
            answer = http.post("/v1/chat/completions", json=body).json()["refrain"]
    for name in ["README.md", "README.zh-CN.md"]:
        text = (ROOT / name).read_text(encoding="utf-8")
        shown = json.loads(EXTENSION.search(text)[1])["refrain"]
        assert keys(shown) == keys(answer)
        assert without_chance(shown) == without_chance(answer)


def without_chance(extension):
    """What is the same for the same requests."""
    verdict = {**extension["verdict"], "compared_with": extension["verdict"]["compared_with"][:9]}
    return {**extension, "verdict": verdict, "timings": None}


def keys(value):
    """The names of all fields, in their order."""
    if isinstance(value, dict):
        return [(name, keys(inner)) for name, inner in value.items()]
    return None


def test_there_is_a_section_for_each_of_the_checklist(default_model):
    sections = document("check", "article")["sections"]
    titles = [f"{section['letter']}. {section['title']}" for section in sections]
    tour = HEADING.findall((ROOT / PAIR[0]).read_text(encoding="utf-8"))
    assert [heading for heading in tour if re.match(r"[A-Z]\. ", heading)] == titles
    chinese = HEADING.findall((ROOT / PAIR[1]).read_text(encoding="utf-8"))
    letters = [heading[0] for heading in chinese if re.match(r"[A-Z]\. ", heading)]
    assert letters == [section["letter"] for section in sections]


def test_a_stale_block_is_noticed():
    written = "19 next  ' a'  0.6693 ██▏\n"
    assert not list(differences(written, "19 next   ' a'  0.6690 ██\n"))
    for printed in ["19 next  ' a'  0.7093 ██▏\n", "19 next  ' b'  0.6693 ██▏\n", "", written * 2]:
        assert list(differences(written, printed)), printed
