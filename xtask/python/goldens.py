"""Makes the small random models of the parity tests, and what transformers computes on them.

Run by `cargo xtask goldens`, in an environment of its own.

Each folder below `crates/engine/tests/goldens/` holds a model (`config.json` with
`model.safetensors`, or `model.gguf`) and `goldens.safetensors`: the token ids of one prompt, the
activations at every tap, the logits of every row, and a greedy continuation. Some have
`decode.safetensors`: the steps of the first tokens of that continuation, and the KV cache after
them. The oracle is always transformers' float32 forward with eager attention; for a quantized GGUF
it runs over the weights that the `gguf` package dequantizes. Tap names are TransformerLens's,
except that a norm's `hook_normalized` is what the norm's module returns, gain included.
"""

import json
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path

import gguf
import numpy as np
import torch
import transformers
from safetensors.numpy import save_file

from compare_with_pytorch import Recorder
from goldens_distilgpt2 import record_distilgpt2

ROOT = Path(__file__).resolve().parents[2] / "crates/engine/tests/goldens"
GREEDY_TOKENS = 24
DECODE_STEPS = 2
# A greedy pick must win by more than a parity test tolerates, so that the continuation is
# the same for every implementation that passes.
GREEDY_MARGIN = 1e-3
MERGES = ["Ġ t", "h e", "Ġt he", "i n", "e r", "a n", "o n", "r e", "Ġ a", "in g", "an d", "Ġ |"]


def byte_symbols():
    """GPT-2's printable stand-in for each byte (`bytes_to_unicode` of the original encoder)."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    symbols = {byte: chr(byte) for byte in printable}
    symbols |= {byte: chr(256 + index) for index, byte in enumerate(others)}
    return [symbols[byte] for byte in (*printable, *others)]


VOCABULARY = byte_symbols() + [merge.replace(" ", "") for merge in MERGES] + ["<|endoftext|>"]
END = len(VOCABULARY) - 1


@dataclass
class Case:
    """One folder of goldens."""

    name: str
    kind: str  # "gpt2" or "llama"
    options: dict
    rows: int = 20
    config_style: int = 5  # the transformers version whose config.json is written
    prefix: bool = True  # GPT-2 only: names begin with `transformer.`
    gguf_type: str | None = None  # of its matrices; None: a Hugging Face folder
    gguf_other_types: dict = field(default_factory=dict)  # part of a name: type

    def type_of(self, name):
        """The GGUF type of the matrix that the model calls `name`."""
        others = self.gguf_other_types.items()
        kind = next((kind for part, kind in others if part in name), self.gguf_type)
        return gguf.GGMLQuantizationType[kind]


def llama(**options):
    """A Llama of 2 layers, in the shape the cases vary."""
    shape = dict(hidden_size=32, intermediate_size=56, num_attention_heads=4, num_key_value_heads=4)
    return {"num_hidden_layers": 2, **shape, **options}


def gpt2(**options):
    """A GPT-2 of 2 layers whose inner width is not four times its hidden width."""
    return {"n_layer": 2, "n_embd": 48, "n_head": 3, "n_inner": 80, **options}


def rope(base, **scaling):
    return {"rope_parameters": {"rope_theta": base, "rope_type": "default", **scaling}}


LLAMA3 = dict(
    rope_type="llama3",
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=16,
)
BIASED = dict(attention_bias=True, mlp_bias=True)
BLOCKS = llama(hidden_size=64, intermediate_size=96, num_key_value_heads=2)

# The K types have blocks of 256.
K_BLOCKS = {
    **llama(hidden_size=256, intermediate_size=256, num_key_value_heads=2),
    "num_hidden_layers": 1,
}

CASES = [
    Case("gpt2-prefix", "gpt2", gpt2(), rows=70),
    Case("gpt2-plain", "gpt2", gpt2(n_head=4, activation_function="gelu"), prefix=False),
    Case("llama-mha-untied", "llama", llama(tie_word_embeddings=False, **rope(10000.0))),
    Case(
        "llama-gqa2-biased",
        "llama",
        llama(num_key_value_heads=2, tie_word_embeddings=True, **BIASED, **rope(500000.0)),
        config_style=4,
    ),
    Case(
        "llama-gqa3-wide-heads",
        "llama",
        llama(
            hidden_size=36,
            num_attention_heads=6,
            num_key_value_heads=2,
            head_dim=16,
            tie_word_embeddings=True,
            **rope(100000.0, rope_type="linear", factor=2.0),
        ),
        rows=70,
    ),
    Case(
        "llama-gqa4-llama3",
        "llama",
        llama(num_key_value_heads=1, tie_word_embeddings=False, **rope(500000.0, **LLAMA3)),
        config_style=4,
    ),
    Case("gguf-gpt2-f32", "gpt2", gpt2(), gguf_type="F32"),
    Case("gguf-gpt2-q8_0", "gpt2", gpt2(n_embd=64, n_head=4, n_inner=96), gguf_type="Q8_0"),
    Case(
        "gguf-llama-f32",
        "llama",
        llama(
            num_key_value_heads=2,
            tie_word_embeddings=False,
            **BIASED,
            **rope(500000.0, **LLAMA3),
        ),
        gguf_type="F32",
    ),
    *[
        Case(
            f"gguf-llama-{name.lower()}",
            "llama",
            {**BLOCKS, "tie_word_embeddings": tied, **rope(100000.0)},
            gguf_type=name,
        )
        for name, tied in [
            ("F16", True),
            ("BF16", False),
            ("Q8_0", True),
            ("Q4_0", False),
            ("Q4_1", True),
            ("Q5_0", True),
            ("Q5_1", False),
        ]
    ],
    Case(
        "gguf-llama-mixed",
        "llama",
        {**BLOCKS, "tie_word_embeddings": True, **rope(100000.0)},
        gguf_type="Q4_0",
        gguf_other_types={
            "v_proj": "Q8_0",
            "embed_tokens": "Q8_0",
            "up_proj": "F16",
            "layers.1.self_attn.k_proj": "F32",
        },
    ),
    Case(
        "gguf-llama-k",
        "llama",
        {**K_BLOCKS, "tie_word_embeddings": True, **rope(100000.0)},
        gguf_type="Q4_K",
        gguf_other_types={
            "v_proj": "Q6_K",
            "embed_tokens": "Q6_K",
            "down_proj": "Q5_K",
            "o_proj": "Q5_K",
        },
    ),
]


def make_model(case, seed):
    """A model with every parameter random: gains near one, biases and weights well off zero."""
    common = dict(
        vocab_size=len(VOCABULARY),
        bos_token_id=END,
        eos_token_id=END,
        attn_implementation="eager",
    )
    if case.kind == "gpt2":
        config = transformers.GPT2Config(n_positions=128, **common, **case.options)
        model = transformers.GPT2LMHeadModel(config)
    else:
        config = transformers.LlamaConfig(max_position_embeddings=128, **common, **case.options)
        model = transformers.LlamaForCausalLM(config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            is_gain = parameter.ndim == 1 and name.endswith("weight")
            parameter.copy_(1.0 + 0.2 * noise if is_gain else 0.2 * noise)
    return model.eval()


def arrays(tensors):
    """Tensors without their batch, as they are kept."""
    return {name: np.ascontiguousarray(tensor[0].numpy()) for name, tensor in tensors.items()}


def without_cache(tensors):
    return {name: tensor for name, tensor in tensors.items() if "kv_cache." not in name}


def greedy(model, ids):
    """The greedy continuation, or None where a pick is too close to call."""
    ids = list(ids)
    for _ in range(GREEDY_TOKENS):
        with torch.no_grad():
            logits = model(torch.tensor([ids]), use_cache=False).logits[0, -1]
        top = torch.topk(logits, 2)
        if top.values[0] - top.values[1] < GREEDY_MARGIN * logits.abs().max():
            return None
        ids.append(int(top.indices[0]))
    return ids[-GREEDY_TOKENS:]


def write_tokenizer(folder):
    vocabulary = {token: index for index, token in enumerate(VOCABULARY)}
    (folder / "vocab.json").write_text(json.dumps(vocabulary, ensure_ascii=False) + "\n")
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(MERGES) + "\n")


def as_transformers_4(config):
    """The same configuration in the keys that transformers 4 writes."""
    rope_parameters = dict(config.pop("rope_parameters", None) or {})
    config["rope_theta"] = rope_parameters.pop("rope_theta")
    scaled = rope_parameters.get("rope_type") != "default"
    config["rope_scaling"] = rope_parameters if scaled else None
    config["torch_dtype"] = config.pop("dtype", "float32")
    config["transformers_version"] = "4.46.0"
    return config


def write_folder(case, model, folder):
    """A Hugging Face folder, as `save_pretrained` writes it or as older files are."""
    state = {name: value.numpy() for name, value in model.state_dict().items()}
    if case.kind == "gpt2" or model.config.tie_word_embeddings:
        state.pop("lm_head.weight")
    if not case.prefix:
        # The first GPT-2 files have no prefix, and carry the causal mask as a tensor.
        state = {name.removeprefix("transformer."): value for name, value in state.items()}
        mask = np.tril(np.ones((1, 1, 128, 128), dtype=np.float32))
        state["h.0.attn.bias"] = mask
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads(model.config.to_json_string(use_diff=False))
    config = {key: value for key, value in config.items() if value is not None}
    config |= {"architectures": [type(model).__name__], "dtype": "float32"}
    if case.config_style == 4:
        config = as_transformers_4(config)
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    write_tokenizer(folder)


GPT2_NAMES = {
    "transformer.wte.": "token_embd.",
    "transformer.wpe.": "position_embd.",
    "transformer.ln_f.": "output_norm.",
    "lm_head.": "output.",
    "transformer.h.": "blk.",
    ".ln_1.": ".attn_norm.",
    ".ln_2.": ".ffn_norm.",
    ".attn.c_attn.": ".attn_qkv.",
    ".attn.c_proj.": ".attn_output.",
    ".mlp.c_fc.": ".ffn_up.",
    ".mlp.c_proj.": ".ffn_down.",
}
LLAMA_NAMES = {
    "model.embed_tokens.": "token_embd.",
    "model.norm.": "output_norm.",
    "lm_head.": "output.",
    "model.layers.": "blk.",
    ".input_layernorm.": ".attn_norm.",
    ".post_attention_layernorm.": ".ffn_norm.",
    ".self_attn.q_proj.": ".attn_q.",
    ".self_attn.k_proj.": ".attn_k.",
    ".self_attn.v_proj.": ".attn_v.",
    ".self_attn.o_proj.": ".attn_output.",
    ".mlp.gate_proj.": ".ffn_gate.",
    ".mlp.up_proj.": ".ffn_up.",
    ".mlp.down_proj.": ".ffn_down.",
}


def gguf_name(kind, name):
    for old, new in (GPT2_NAMES if kind == "gpt2" else LLAMA_NAMES).items():
        name = name.replace(old, new)
    return name


def interleave(value, heads):
    """llama.cpp's row order of q and k (`LlamaModel.permute` of its converter)."""
    halves = value.reshape(heads, 2, value.shape[0] // heads // 2, *value.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(value.shape))


def gguf_tensors(case, model):
    """(GGUF name, stored value, is a matrix of weights) of each tensor, not yet quantized."""
    config, seen = model.config, set()
    for name, parameter in model.named_parameters():
        value = parameter.detach().numpy()
        if ".c_" in name and name.endswith("weight"):
            value = np.ascontiguousarray(value.T)  # Conv1D stores inputs x outputs
        if ".q_proj." in name:
            value = interleave(value, config.num_attention_heads)
        if ".k_proj." in name:
            value = interleave(value, config.num_key_value_heads)
        assert name not in seen
        seen.add(name)
        yield name, value, value.ndim == 2 and "wpe" not in name


PACKED_ROWS = {}  # the bytes of a row that stands for exactly these numbers, by type and numbers


def quantize(value, kind):
    """A matrix in the bytes of a GGUF type, row by row; of the K types in a plain way of our own,
    as the package has none: what the bytes stand for is always the package's word. What stands
    for itself already keeps its bytes, since that way does not come back to them."""
    if kind not in (Q4_K, Q5_K, Q6_K):
        return gguf.quants.quantize(value, kind)
    known = [PACKED_ROWS.get((kind, row.tobytes())) for row in value]
    if all(row is not None for row in known):
        return np.stack(known)
    blocks = value.reshape(-1, 256).astype(np.float32)
    pack = pack_q6_k(blocks) if kind == Q6_K else pack_q4_or_q5_k(blocks, kind)
    packed = pack.reshape(len(value), -1)
    exact = gguf.quants.dequantize(packed, kind)
    error = np.abs(exact - value).max()
    assert error < 0.2, f"{kind.name}: {error}"
    for row, numbers in zip(packed, exact, strict=True):
        PACKED_ROWS[kind, numbers.astype(np.float32).tobytes()] = row
    return packed


Q4_K, Q5_K, Q6_K = (gguf.GGMLQuantizationType[name] for name in ("Q4_K", "Q5_K", "Q6_K"))


def halves(value):
    """f16 numbers as bytes."""
    return value.astype(np.float16).reshape(len(value), 1).view(np.uint8)


def pack_q4_or_q5_k(blocks, kind):
    """`block_q4_K` and `block_q5_K` of ggml: per 32 numbers a scale and a minimum of 6 bits."""
    levels = 15 if kind == Q4_K else 31
    parts = blocks.reshape(-1, 8, 32)
    minimums = np.maximum(-parts.min(axis=2), 0.0)
    scales = (parts.max(axis=2) + minimums) / levels
    d = (scales.max(axis=1) / 63).astype(np.float16).astype(np.float32)
    m = (minimums.max(axis=1) / 63).astype(np.float16).astype(np.float32)
    s6 = np.clip(np.round(scales / d[:, None]), 1, 63).astype(np.uint8)
    m6 = np.clip(np.round(minimums / m[:, None]), 0, 63).astype(np.uint8)
    step, least = (d[:, None] * s6)[..., None], (m[:, None] * m6)[..., None]
    q = np.clip(np.round((parts + least) / step), 0, levels).astype(np.uint8)
    sixes = np.zeros((len(q), 12), np.uint8)
    sixes[:, 0:4] = s6[:, :4] | s6[:, 4:] >> 4 << 6
    sixes[:, 4:8] = m6[:, :4] | m6[:, 4:] >> 4 << 6
    sixes[:, 8:12] = s6[:, 4:] & 15 | (m6[:, 4:] & 15) << 4
    nibbles = (q[:, 0::2] & 15 | (q[:, 1::2] & 15) << 4).reshape(len(q), 128)
    fifths = np.zeros((len(q), 32), np.uint8)
    for part in range(8):
        fifths |= (q[:, part] >> 4) << part
    middle = [] if kind == Q4_K else [fifths]
    return np.concatenate([halves(d), halves(m), sixes, *middle, nibbles], axis=1)


def pack_q6_k(blocks):
    """`block_q6_K` of ggml: per 16 numbers a signed scale of 8 bits."""
    parts = blocks.reshape(-1, 16, 16)
    scales = np.abs(parts).max(axis=2) / 31
    d = (scales.max(axis=1) / 127).astype(np.float16).astype(np.float32)
    s8 = np.clip(np.round(scales / d[:, None]), 1, 127).astype(np.int8)
    step = (d[:, None] * s8)[..., None]
    q = (np.clip(np.round(parts / step), -32, 31) + 32).astype(np.uint8)
    # Each 128 numbers: four groups of 32, of which two share a byte of low bits.
    groups = q.reshape(-1, 2, 4, 32)
    low = np.stack(
        [groups[:, :, 0] & 15 | groups[:, :, 2] << 4, groups[:, :, 1] & 15 | groups[:, :, 3] << 4],
        axis=2,
    )
    high = sum((groups[:, :, group] >> 4) << (2 * group) for group in range(4))
    rows = len(q)
    parts = [low.reshape(rows, 128), high.reshape(rows, 64), s8.view(np.uint8), halves(d)]
    return np.concatenate(parts, axis=1).astype(np.uint8)


def quantize_in_place(case, model):
    """Replaces each matrix of the model by what its quantized form stands for."""
    state = dict(model.named_parameters())
    with torch.no_grad():
        for name, value, is_matrix in gguf_tensors(case, model):
            if is_matrix:
                kind = case.type_of(name)
                # Quantization blocks lie within rows, so that Q/K's row order does not matter.
                plain = state[name].detach().numpy()
                plain = plain.T if ".c_" in name else plain
                exact = gguf.quants.dequantize(quantize(plain, kind), kind)
                exact = exact.T if ".c_" in name else exact
                state[name].copy_(torch.from_numpy(np.ascontiguousarray(exact)))


def llama3_factors(config):
    """`rope_freqs.weight`: by what llama.cpp divides each frequency (Llama 3.1's rule)."""
    scaling, width = config.rope_parameters, config.hidden_size // config.num_attention_heads
    frequency = scaling["rope_theta"] ** (-np.arange(0, width, 2, dtype=np.float64) / width)
    wavelength = 2 * np.pi / frequency
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    context, factor = scaling["original_max_position_embeddings"], scaling["factor"]
    smooth = np.clip((context / wavelength - low) / (high - low), 0.0, 1.0)
    return (1 / ((1 - smooth) / factor + smooth)).astype(np.float32)


def write_gguf(case, model, folder):
    config = model.config
    writer = gguf.GGUFWriter(folder / "model.gguf", case.kind)
    writer.add_name(case.name)
    writer.add_context_length(128)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_head_count(config.num_attention_heads)
    if case.kind == "gpt2":
        writer.add_feed_forward_length(config.n_inner)
        writer.add_layer_norm_eps(config.layer_norm_epsilon)
    else:
        writer.add_feed_forward_length(config.intermediate_size)
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
        writer.add_head_count_kv(config.num_key_value_heads)
        writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
        writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
        writer.add_vocab_size(len(VOCABULARY))
        if config.rope_parameters["rope_type"] == "llama3":
            writer.add_tensor("rope_freqs.weight", llama3_factors(config))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(VOCABULARY)
    writer.add_token_types([gguf.TokenType.NORMAL] * END + [gguf.TokenType.CONTROL])
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(END)
    writer.add_eos_token_id(END)
    for name, value, is_matrix in gguf_tensors(case, model):
        tensor_kind = case.type_of(name) if is_matrix else gguf.GGMLQuantizationType.F32
        packed = quantize(value, tensor_kind)
        writer.add_tensor(gguf_name(case.kind, name), packed, raw_dtype=tensor_kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def record(case):
    folder = ROOT / case.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for seed in range(1, 1000):
        model = make_model(case, seed)
        if case.gguf_type:
            quantize_in_place(case, model)
        ids = np.random.default_rng(seed).integers(0, END, case.rows).tolist()
        continuation = greedy(model, ids)
        if continuation and len(set(continuation)) > GREEDY_TOKENS // 4:
            break
    (write_gguf if case.gguf_type else write_folder)(case, model, folder)
    recorder = Recorder(model)
    taps = without_cache(arrays(recorder.step(ids)))
    taps["tokens"] = np.array(ids, dtype=np.int32)
    taps["greedy"] = np.array(continuation, dtype=np.int32)
    save_file(taps, folder / "goldens.safetensors")
    if not case.gguf_type:
        # The last cache has all that the earlier ones have.
        decoded = {}
        for index, token in enumerate(continuation[:DECODE_STEPS]):
            step = arrays(recorder.step([token]))
            decoded = without_cache(decoded)
            decoded |= {f"decode.{index}.{name}": tap for name, tap in step.items()}
        save_file(decoded, folder / "decode.safetensors")
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"{case.name}: seed {seed}, {len(taps)} tensors, {size / 1024:.0f} KiB")
    assert size < 1 << 20


def main(names):
    """Records the cases called `names`, or all of them."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for case in CASES:
        if not names or case.name in names:
            record(case)
    if not names:
        record_distilgpt2(ROOT / "distilgpt2-shaped")


if __name__ == "__main__":
    main(sys.argv[1:])
