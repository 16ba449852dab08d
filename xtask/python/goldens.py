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
                exact = gguf.quants.dequantize(gguf.quants.quantize(plain, kind), kind)
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
        packed = gguf.quants.quantize(value, tensor_kind)
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


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for case in CASES:
        record(case)
    record_distilgpt2(ROOT / "distilgpt2-shaped")


if __name__ == "__main__":
    main()
