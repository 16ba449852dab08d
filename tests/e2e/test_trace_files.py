"""`refrain trace` with --tensor, --save and --compare, read and written by other programs."""

import json
import os
import resource
import stat

import numpy as np
import pytest

from harness import command, document
from models import HEADS, HIDDEN, LAYERS, gpt2_tensors, read_safetensors, write_safetensors

PROMPT = ["-p", "The cat sat on"]
IDS = [464, 3797, 3332, 319]


@pytest.fixture(scope="module")
def saved(gpt2, tmp_path_factory):
    """All tensors of one trace, in a file."""
    path = tmp_path_factory.mktemp("saved") / "cat.safetensors"
    command("trace", str(gpt2), *PROMPT, "--save", str(path))
    return path


def test_what_is_saved_is_what_numpy_computes_from_the_weights(gpt2, saved):
    tensors, weights = read_safetensors(saved), gpt2_tensors()
    width = HIDDEN // HEADS
    embed = weights["wte.weight"][IDS]
    assert np.array_equal(tensors["hook_embed"][0], embed)
    assert np.array_equal(tensors["hook_pos_embed"][0], weights["wpe.weight"][:4])
    x = embed + weights["wpe.weight"][:4]
    assert np.array_equal(tensors["blocks.0.hook_resid_pre"][0], x)
    centred = x - x.mean(-1, keepdims=True)
    normed = centred / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    assert np.allclose(tensors["blocks.0.ln1.hook_normalized"][0], normed, atol=1e-5)
    qkv = normed @ weights["h.0.attn.c_attn.weight"] + weights["h.0.attn.c_attn.bias"]
    q, k, _ = (part.reshape(4, HEADS, width) for part in np.split(qkv, 3, axis=-1))
    assert np.allclose(tensors["blocks.0.attn.hook_q"][0], q, atol=1e-4)
    scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(width)
    scores = np.where(np.tri(4, dtype=bool), scores, -np.inf)
    assert np.allclose(tensors["blocks.0.attn.hook_attn_scores"][0], scores, atol=1e-4)
    pattern = np.exp(scores - scores.max(-1, keepdims=True))
    pattern /= pattern.sum(-1, keepdims=True)
    assert np.allclose(tensors["blocks.0.attn.hook_pattern"][0], pattern, atol=1e-4)
    for layer in range(LAYERS):
        at = f"blocks.{layer}."
        middle = tensors[at + "hook_resid_pre"] + tensors[at + "hook_attn_out"]
        assert np.allclose(tensors[at + "hook_resid_mid"], middle, atol=1e-5)
        after = tensors[at + "hook_resid_mid"] + tensors[at + "hook_mlp_out"]
        assert np.allclose(tensors[at + "hook_resid_post"], after, atol=1e-5)


def test_decode_steps_and_the_kv_cache_are_kept_under_their_names(gpt2, saved, tmp_path):
    path = tmp_path / "decode.safetensors"
    command("trace", str(gpt2), *PROMPT, "--decode", "2", "--save", str(path))
    tensors, alone = read_safetensors(path), read_safetensors(saved)
    width = HIDDEN // HEADS
    for name, tensor in alone.items():
        assert np.array_equal(tensors[name], tensor), name
    names = {name.removeprefix("decode.0.") for name in tensors if name.startswith("decode.0.")}
    assert names == set(alone)
    for layer in range(LAYERS):
        for part, tap in [("keys", "hook_k"), ("values", "hook_v")]:
            cache = tensors[f"kv_cache.{layer}.{part}"]
            assert cache.shape == (1, HEADS, 4, width)
            prefill = tensors[f"blocks.{layer}.attn.{tap}"]
            assert np.array_equal(cache, prefill.transpose(0, 2, 1, 3))
            for step in range(2):
                grown = tensors[f"decode.{step}.kv_cache.{layer}.{part}"]
                new = tensors[f"decode.{step}.blocks.{layer}.attn.{tap}"]
                assert new.shape == (1, 1, HEADS, width)
                cache = np.concatenate([cache, new.transpose(0, 2, 1, 3)], axis=2)
                assert np.array_equal(grown, cache)
    assert tensors["decode.1.blocks.0.attn.hook_pattern"].shape == (1, HEADS, 1, 6)
    assert tensors["decode.1.blocks.0.attn.hook_attn_scores"].shape == (1, HEADS, 1, 6)
    arguments = ["trace", str(gpt2), *PROMPT, "--decode", "2"]
    same = json.loads(
        command(*arguments, "--compare", str(path), "--tolerance", "0", "--json").stdout
    )
    assert len(same["tensors"]) == len(tensors)
    (part,) = document(*arguments, "--tensor", "decode.0.kv_cache.1.keys[0,1,-1,:2]")["tensors"]
    wanted = tensors["decode.0.kv_cache.1.keys"][0, 1, -1, :2]
    assert np.array_equal(np.array(part["values"], np.float32), wanted)
    alias = "decode.1.past_key_values.layers.0.values"
    (whole,) = document(*arguments, "--tensor", alias)["tensors"]
    assert whole["shape"] == [1, HEADS, 6, width]
    command(*arguments, "--tensor", "decode.2.hook_embed", check=2)


def test_a_saved_file_says_of_which_tokens_it_is(gpt2, tmp_path):
    path = tmp_path / "embed.safetensors"
    options = ["--decode", "1", "--tensor", "hook_embed", "--save", str(path)]
    command("trace", str(gpt2), *PROMPT, *options)
    first = path.read_bytes()
    command("trace", str(gpt2), *PROMPT, *options)
    assert path.read_bytes() == first
    header = json.loads(first[8 : 8 + int.from_bytes(first[:8], "little")])
    facts = json.loads(header["__metadata__"]["refrain.trace"])
    assert facts["tokens"] == IDS
    assert len(facts["decoded"]) == 1


def test_the_three_formats_say_the_same(gpt2, saved, tmp_path):
    name = "blocks.1.attn.hook_z"
    whole = read_safetensors(saved)[name]
    npy, text = tmp_path / "z.npy", tmp_path / "z.json"
    command("trace", str(gpt2), *PROMPT, "--tensor", f"{name}[0, 1:, -1]", "--save", str(npy))
    assert np.array_equal(np.load(npy), whole[0, 1:, -1])
    command("trace", str(gpt2), *PROMPT, "--tensor", name, "--save", str(text))
    (tensor,) = json.loads(text.read_text())["tensors"]
    assert tensor["shape"] == list(whole.shape)
    assert np.array_equal(np.array(tensor["values"], np.float32), whole.ravel())
    report = document("trace", str(gpt2), *PROMPT, "--tensor", f"{name}[0,0,0,:3]")
    assert report["schema"] == "refrain.tensors/1"
    assert np.array_equal(np.array(report["tensors"][0]["values"], np.float32), whole[0, 0, 0, :3])


def test_scores_that_the_mask_hides_are_kept_and_compared(gpt2, tmp_path):
    name = "blocks.1.attn.hook_attn_scores"
    (scores,) = document("trace", str(gpt2), *PROMPT, "--tensor", f"{name}[0,0,1]")["tensors"]
    assert scores["values"][2:] == ["-Infinity"] * 2
    assert all(isinstance(score, float) for score in scores["values"][:2])
    listed = document("trace", str(gpt2), *PROMPT, "--list")["tensors"]
    assert [one["shape"] for one in listed if one["name"] == name] == [[1, HEADS, 4, 4]]
    for ending in ["safetensors", "npy", "json"]:
        path = tmp_path / f"scores.{ending}"
        command("trace", str(gpt2), *PROMPT, "--tensor", name, "--save", str(path))
        options = ["--tensor", name, "--compare", str(path), "--tolerance", "0"]
        command("trace", str(gpt2), *PROMPT, *options)
    # Where only one side hides a position, they differ.
    shown = json.loads(path.read_text())
    shown["tensors"][0]["values"] = [0.0] * (HEADS * 16)
    path.write_text(json.dumps(shown))
    done = command("trace", str(gpt2), *PROMPT, "--compare", str(path), check=3)
    assert "-inf here, 0 there" in done.stdout
    # What the mask hides is no part of the facts about the others.
    steps = document("trace", str(gpt2), *PROMPT)["steps"]
    (stats,) = [step["stats"] for step in steps if step["name"] == name]
    assert all(isinstance(fact, float) for fact in stats.values())


def test_an_alias_shows_its_tensor(gpt2):
    report = document("trace", str(gpt2), *PROMPT, "--tensor", "transformer.wte")
    assert [tensor["name"] for tensor in report["tensors"]] == ["hook_embed"]


def test_a_comparison_passes_or_exits_with_3(gpt2, saved, tmp_path):
    same = document("trace", str(gpt2), *PROMPT, "--compare", str(saved), "--tolerance", "0")
    assert same["schema"] == "refrain.compare/1"
    assert same["passed"]
    assert len(same["tensors"]) == len(read_safetensors(saved))
    tensors = read_safetensors(saved)
    tensors["blocks.1.hook_mlp_out"][0, 2, 5] += 0.25
    tensors["of_another_program"] = np.zeros((1, 2), np.float32)
    changed = tmp_path / "changed.safetensors"
    write_safetensors(changed, tensors)
    arguments = ["trace", str(gpt2), *PROMPT, "--compare", str(changed)]
    done = command(*arguments, check=3)
    different = [line for line in done.stdout.splitlines() if line.startswith("DIFFERS")]
    assert len(different) == 1
    assert "blocks.1.hook_mlp_out" in different[0]
    assert "2.5e-1" in different[0]
    report = json.loads(command(*arguments, "--json", check=3).stdout)
    assert [one["name"] for one in report["skipped"]] == ["of_another_program"]
    command(*arguments, "--tolerance", "0.26")
    command(*arguments, "--tensor", "blocks.0.hook_mlp_out")
    command("trace", str(gpt2), "-p", "The cat sat", "--compare", str(saved), check=3)


def test_a_npy_file_is_compared_with_the_tensor_that_is_named(gpt2, saved, tmp_path):
    path = tmp_path / "embed.npy"
    np.save(path, read_safetensors(saved)["hook_embed"].astype(np.float64))
    arguments = ["trace", str(gpt2), *PROMPT, "--compare", str(path)]
    command(*arguments, "--tensor", "hook_embed", "--tolerance", "0")
    command(*arguments, "--tensor", "transformer.wte", "--tolerance", "0")
    command(*arguments, "--tensor", "hook_pos_embed", check=3)
    command(*arguments, check=2)


@pytest.mark.parametrize(
    ("options", "status"),
    [
        (["--tensor", "hook_embed["], 2),
        (["--tensor", "hook_embed[9]"], 2),
        (["--tensor", "hook_embed[...]"], 2),
        (["--tensor", "hook_embed[::-1]"], 2),
        (["--tensor", "no_such_tensor"], 2),
        (["--tensor", "x" * 100_000], 2),
        (["--tensor", "decode.0." + "x" * 100_000], 2),
        (["--save", ".npy"], 2),
        (["--save", "x.npy"], 2),
        (["--save", "tensors.txt"], 2),
        (["--save", "/no/such/folder/a.json"], 1),
        (["--compare", "/no/such/file.json"], 1),
        (["--tolerance", "-1"], 2),
    ],
)
def test_what_is_wrong_is_said(gpt2, options, status):
    done = command("trace", str(gpt2), *PROMPT, *options, check=status)
    assert done.stdout == ""
    assert 0 < len(done.stderr) < 1000


def test_names_are_listed_with_shapes_and_aliases(gpt2, saved):
    arguments = ["trace", str(gpt2), *PROMPT, "--list"]
    listed = {line.split()[0] for line in command(*arguments).stdout.splitlines()}
    assert listed == set(read_safetensors(saved))
    report = document(*arguments, "--decode", "2")
    assert report["schema"] == "refrain.names/1"
    by_name = {tensor["name"]: tensor for tensor in report["tensors"]}
    assert {name for name in by_name if not name.startswith("decode.")} == listed
    width = HIDDEN // HEADS
    assert by_name["decode.0.kv_cache.1.keys"]["shape"] == [1, HEADS, 5, width]
    assert by_name["hook_embed"]["alias"] == "transformer.wte"
    text = command(*arguments, "--decode", "2").stdout
    assert text.splitlines()[-1] == "decode.1.: the same names"


def test_a_name_that_is_not_there_or_several_is_told_which_are(gpt2):
    def said(name: str, check: int) -> str:
        return command("trace", str(gpt2), *PROMPT, "--tensor", name, check=check).stderr

    assert "did you mean blocks.0.attn.hook_pattern" in said("blocks.0.atn.hook_pattern", 2)
    assert "blocks.0.attn.hook_pattern" in said("blocks.0.pattern", 2)
    several = said("transformer.h.0.attn.c_attn", 2)
    assert all(f"blocks.0.attn.hook_{part}" in several for part in "qkv")


def test_files_have_the_usual_permissions_and_are_not_shown(gpt2, tmp_path):
    modes = set()
    for name in ["a.safetensors", "a.npy", "a.json"]:
        path = tmp_path / name
        arguments = ["--tensor", "hook_embed", "--save", str(path)]
        done = command("trace", str(gpt2), *PROMPT, *arguments, preexec_fn=lambda: os.umask(0o022))
        assert done.stdout.splitlines() == [f"hook_embed  (1, 4, {HIDDEN})"]
        assert f"Saved {path} (1 tensor)" in done.stderr
        modes.add(path.stat().st_mode & 0o777)
    assert modes == {0o644}
    both = ["--tensor", "hook_embed", "--tensor", "logits", "--save", str(tmp_path / "b.npy")]
    assert "holds one tensor" in command("trace", str(gpt2), *PROMPT, *both, check=2).stderr


def test_a_npy_file_without_a_tensor_is_refused_before_the_model_is_read():
    done = command("trace", "/no/such/model", *PROMPT, "--save", "x.NPY", check=2)
    assert "--tensor" in done.stderr


def test_a_chosen_tensor_that_the_file_does_not_have_is_missing(gpt2, tmp_path):
    path = tmp_path / "embed.json"
    command("trace", str(gpt2), *PROMPT, "--tensor", "hook_embed", "--save", str(path))
    both = ["--tensor", "hook_embed", "--tensor", "hook_pos_embed"]
    arguments = ["trace", str(gpt2), *PROMPT, "--compare", str(path)]
    done = command(*arguments, *both, check=3)
    assert "MISSING  hook_pos_embed" in done.stdout
    report = json.loads(command(*arguments, *both, "--json", check=3).stdout)
    assert [one["name"] for one in report["missing"]] == ["hook_pos_embed"]
    done = command(*arguments, "--tensor", "hook_pos_embed", check=3)
    assert "nothing was compared: " in done.stdout
    path.write_text('{"tensors": []}')
    done = command(*arguments, check=3)
    assert "nothing was compared: the file has no tensors" in done.stdout


@pytest.mark.parametrize("ending", ["safetensors", "npy", "json"])
def test_a_file_that_cannot_be_written_stays_as_it_was(gpt2, tmp_path, ending):
    path = tmp_path / f"tensor.{ending}"
    arguments = ["trace", str(gpt2), *PROMPT, "--tensor", "hook_embed", "--save", str(path)]
    command(*arguments, umask=0o027)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    before = path.read_bytes()

    def full():
        resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))

    # Python ignores SIGXFSZ, and so does what it starts, which then gets an error.
    failed = command(*arguments, check=1, preexec_fn=full, restore_signals=False)
    assert "cannot write" in failed.stderr
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == [path.name]
