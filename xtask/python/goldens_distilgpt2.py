"""The DistilGPT-2-shaped random model: its weights come from a hash, so that only logits are kept.

`value` is the generator; the parity test has the same one in Rust. Element `i` of tensor number
`t` (in the order of `TENSORS`, row-major) is `h(i + t * 0x9E3779B1)`, where `h` is MurmurHash3's
32-bit finalizer, its upper 24 bits taken as a number in [-1, 1), times 1/32; a norm's gain is
1 + 4 times that. All in float32, where each of these steps is exact or rounds once. Token `p` of
the prompt is `h(p) % 50257`.
"""

import numpy as np
import torch
import transformers
from safetensors.numpy import save_file

LAYERS, HIDDEN, VOCABULARY, CONTEXT = 6, 768, 50257, 1024
POSITIONS = [0, 511, 1023]


def tensors():
    """(name, shape) of every tensor, in the generator's order."""
    yield "transformer.wte.weight", (VOCABULARY, HIDDEN)
    yield "transformer.wpe.weight", (CONTEXT, HIDDEN)
    for layer in range(LAYERS):
        at = f"transformer.h.{layer}."
        for norm in ("ln_1", "ln_2"):
            yield f"{at}{norm}.weight", (HIDDEN,)
            yield f"{at}{norm}.bias", (HIDDEN,)
        for name, inputs, outputs in (
            ("attn.c_attn", HIDDEN, 3 * HIDDEN),
            ("attn.c_proj", HIDDEN, HIDDEN),
            ("mlp.c_fc", HIDDEN, 4 * HIDDEN),
            ("mlp.c_proj", 4 * HIDDEN, HIDDEN),
        ):
            yield f"{at}{name}.weight", (inputs, outputs)
            yield f"{at}{name}.bias", (outputs,)
    yield "transformer.ln_f.weight", (HIDDEN,)
    yield "transformer.ln_f.bias", (HIDDEN,)


def finalize(h):
    """MurmurHash3's 32-bit finalizer."""
    h = h.astype(np.uint32)
    h ^= h >> np.uint32(16)
    h *= np.uint32(0x85EBCA6B)
    h ^= h >> np.uint32(13)
    h *= np.uint32(0xC2B2AE35)
    return h ^ (h >> np.uint32(16))


def value(number, name, shape):
    index = np.arange(np.prod(shape), dtype=np.uint32) + np.uint32(number * 0x9E3779B1 % 2**32)
    centred = (finalize(index) >> np.uint32(8)).astype(np.int32) - (1 << 23)
    small = centred.astype(np.float32) * np.float32(2.0**-28)
    is_gain = len(shape) == 1 and name.endswith("weight")
    return (np.float32(1) + np.float32(4) * small if is_gain else small).reshape(shape)


def record_distilgpt2(folder):
    """Writes the logits at `POSITIONS` of a prompt that fills the context."""
    config = transformers.GPT2Config(
        n_layer=LAYERS, n_embd=HIDDEN, n_head=12, n_positions=CONTEXT, vocab_size=VOCABULARY
    )
    config._attn_implementation = "eager"
    model = transformers.GPT2LMHeadModel(config).eval()
    state = {
        name: torch.from_numpy(value(number, name, shape))
        for number, (name, shape) in enumerate(tensors())
    }
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert missing == ["lm_head.weight"] and not unexpected, (missing, unexpected)
    model.tie_weights()
    ids = (finalize(np.arange(CONTEXT)) % np.uint32(VOCABULARY)).astype(np.int64)
    with torch.no_grad():
        hidden = model.transformer(torch.from_numpy(ids)[None], use_cache=False).last_hidden_state
        logits = model.lm_head(hidden[0, POSITIONS]).numpy()
    folder.mkdir(parents=True, exist_ok=True)
    save_file({"logits": logits}, folder / "goldens.safetensors")
    print(f"distilgpt2-shaped: logits {logits.shape}, first {logits[:, :3].tolist()}")
