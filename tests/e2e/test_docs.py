"""The documents say what the program prints, and in both languages the same."""

import re

import pytest

from documents import DOCUMENTS, PAIR, blocks, can_run, differences, run, server_for
from harness import ROOT, document

HEADING = re.compile(r"^## (.*)$", re.MULTILINE)


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
