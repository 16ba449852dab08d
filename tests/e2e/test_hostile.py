"""Texts of files, names and paths that would act on a terminal, and weights that are no numbers."""

import json
import shutil

import numpy as np
import pytest

from harness import command
from models import gpt2_tensors, write_safetensors
from terminal import ESCAPE, on_terminal

EVIL = "\x1b[31mred\x1b]0;title\x07\u202e\u200b"


def shown(*arguments: str, status: int) -> str:
    """What a terminal gets, without the program's own colours; nothing in it may act on one."""
    screen, found = on_terminal("--color=always", *arguments)
    assert found == status, screen
    assert "\x1b[31mred" not in screen and "\x1b]" not in screen and "\x07" not in screen
    plain = ESCAPE.sub("", screen).replace("\r\n", "\n")
    for character in "\x1b\u202e\u200b":
        assert character not in plain, (character, screen)
    return plain


def test_tokens_are_escaped(gpt2):
    text = f"a{EVIL}b"
    assert "\\u{1b}" in shown("tokenize", str(gpt2), text, status=0)
    shown("trace", str(gpt2), "-p", text, status=0)


def test_paths_are_escaped(gpt2, tmp_path):
    folder = tmp_path / EVIL.replace("/", "")
    shutil.copytree(gpt2, folder)
    assert "\\u{1b}[31mred" in shown("info", str(folder), status=0)
    shown("trace", str(folder), "-p", "Hi", status=0)
    shown("info", str(folder / "not here"), status=1)
    saved = tmp_path / f"{EVIL}.npy"
    shown("trace", str(gpt2), "-p", "Hi", "--tensor=hook_embed", "--save", str(saved), status=0)
    assert saved.exists()


def test_names_in_files_are_escaped(gpt2, tmp_path):
    file = tmp_path / "x.safetensors"
    write_safetensors(file, {EVIL: np.zeros(3, np.float32)})
    assert "skipped" in shown("trace", str(gpt2), "-p", "Hi", "--compare", str(file), status=3)


def test_names_in_bodies_are_escaped(default_model, tmp_path):
    tool = {"type": "function", "function": {"name": EVIL}}
    body = {"messages": [{"role": "user", "content": EVIL}]}
    (tmp_path / "a.json").write_text(json.dumps(body), encoding="utf-8")
    (tmp_path / "b.json").write_text(json.dumps(body | {"tools": [tool]}), encoding="utf-8")
    first, second = str(tmp_path / "a.json"), str(tmp_path / "b.json")
    assert "\\u{1b}" in shown("why", "--prompt", first, "--against", second, status=1)
    shown("why", "--prompt", first, "--against", first, status=0)


@pytest.mark.parametrize("options", [[], ["--json"], ["--tensor=hook_embed"]])
def test_a_trace_of_damaged_weights_says_where_it_begins(gpt2, tmp_path, options):
    folder = tmp_path / "damaged"
    shutil.copytree(gpt2, folder)
    tensors = gpt2_tensors()
    tensors["h.1.mlp.c_fc.weight"][0, 0] = np.nan
    write_safetensors(folder / "model.safetensors", tensors)
    done = command("trace", str(folder), "-p", "Hi", *options, check=1)
    assert done.stdout
    assert "not numbers; the weights are damaged" in done.stderr
    assert "is blocks.1.mlp.hook_pre" in done.stderr
