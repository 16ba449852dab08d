"""Makes a small random model, in the files of a Hugging Face checkout."""

import json
import shutil
import struct
from pathlib import Path

import numpy as np

HIDDEN, LAYERS, HEADS, CONTEXT, VOCABULARY = 32, 2, 2, 256, 50257


def gpt2_folder(folder: Path, vocabulary: Path, context: int = CONTEXT) -> Path:
    """A random GPT-2 in `folder`, with the real `encoder.json` and `vocab.bpe`."""
    shutil.copy(vocabulary / "encoder.json", folder / "vocab.json")
    shutil.copy(vocabulary / "vocab.bpe", folder / "merges.txt")
    config = {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "activation_function": "gelu_new",
        "n_embd": HIDDEN,
        "n_layer": LAYERS,
        "n_head": HEADS,
        "n_positions": context,
        "n_ctx": context,
        "vocab_size": VOCABULARY,
        "layer_norm_epsilon": 1e-5,
        "bos_token_id": 50256,
        "eos_token_id": 50256,
        "tie_word_embeddings": True,
    }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    write_safetensors(folder / "model.safetensors", gpt2_tensors(context))
    return folder


def gpt2_tensors(context: int = CONTEXT) -> dict[str, np.ndarray]:
    """Weights by their names in a GPT-2 checkout; matrices are stored inputs x outputs."""
    random = np.random.default_rng(2026)

    def normal(*shape: int) -> np.ndarray:
        return random.normal(0.0, 0.2, shape).astype(np.float32)

    tensors = {"wte.weight": normal(VOCABULARY, HIDDEN), "wpe.weight": normal(context, HIDDEN)}
    for layer in range(LAYERS):
        for name, inputs, outputs in [
            ("attn.c_attn", HIDDEN, 3 * HIDDEN),
            ("attn.c_proj", HIDDEN, HIDDEN),
            ("mlp.c_fc", HIDDEN, 4 * HIDDEN),
            ("mlp.c_proj", 4 * HIDDEN, HIDDEN),
        ]:
            tensors[f"h.{layer}.{name}.weight"] = normal(inputs, outputs)
            tensors[f"h.{layer}.{name}.bias"] = normal(outputs)
        for name in ("ln_1", "ln_2"):
            tensors[f"h.{layer}.{name}.weight"] = np.ones(HIDDEN, np.float32)
            tensors[f"h.{layer}.{name}.bias"] = np.zeros(HIDDEN, np.float32)
    tensors["ln_f.weight"] = np.ones(HIDDEN, np.float32)
    tensors["ln_f.bias"] = np.zeros(HIDDEN, np.float32)
    return tensors


def write_safetensors(path: Path, tensors: dict[str, np.ndarray]) -> None:
    """Length of the header, the header as JSON, then the tensors one after the other."""
    header, offset = {}, 0
    for name, tensor in tensors.items():
        end = offset + tensor.nbytes
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            file.write(tensor.tobytes())


def read_safetensors(path: Path) -> dict[str, np.ndarray]:
    """The float32 tensors of a file."""
    data = path.read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    header, body = json.loads(data[8 : 8 + length]), data[8 + length :]
    header.pop("__metadata__", None)
    return {
        name: np.frombuffer(body[slice(*entry["data_offsets"])], np.float32)
        .reshape(entry["shape"])
        .copy()
        for name, entry in header.items()
    }
