"""How far an engine's next-token distributions are from those of a float forward.

The oracle is a Llama forward in numpy float32 over the weights that the `gguf` package dequantizes.
For each position of a public-domain text, the Kullback-Leibler divergence of the engine's
distribution from the oracle's is computed; the mean is printed, and a peer's beside it, if given.
A peer's logits are raw little-endian f32, one row of the vocabulary per position, for the token ids
in `kl-ids.json`; a peer's program is called as `PROGRAM MODEL IDS` and writes them to stdout.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize

TEXT = Path(__file__).parent.parent / "data" / "alice.txt"
MINIMUM_POSITIONS = 1000


class Oracle:
    """A Llama model in float32; GGUF's order of the Q and K rows, so rope turns neighbours."""

    def __init__(self, path: Path):
        reader = GGUFReader(path)
        self.tensors = {tensor.name: tensor for tensor in reader.tensors}
        config = {n: f.contents() for n, f in reader.fields.items() if n.startswith("llama.")}
        self.layers = config["llama.block_count"]
        self.heads = config["llama.attention.head_count"]
        self.kv_heads = config["llama.attention.head_count_kv"]
        self.epsilon = config["llama.attention.layer_norm_rms_epsilon"]
        self.rope_base = config["llama.rope.freq_base"]
        self.rope_dims = config["llama.rope.dimension_count"]

    def weight(self, name: str) -> np.ndarray:
        """The tensor `name` as float32, outermost dimension first."""
        tensor = self.tensors[f"{name}.weight"]
        values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        return values.reshape(tuple(reversed(tensor.shape.tolist())))

    def norm(self, x: np.ndarray, name: str) -> np.ndarray:
        mean_square = np.mean(x * x, axis=-1, keepdims=True)
        return x / np.sqrt(mean_square + np.float32(self.epsilon)) * self.weight(name)

    def rope(self, x: np.ndarray) -> np.ndarray:
        """Turns each pair (2i, 2i + 1) of `x`, positions x heads x head dimension."""
        pairs = np.arange(self.rope_dims // 2)
        frequencies = float(self.rope_base) ** (-2.0 * pairs / self.rope_dims)
        angles = np.arange(x.shape[0])[:, None] * frequencies[None, :]
        cosine, sine = (f(angles).astype(np.float32)[:, None, :] for f in (np.cos, np.sin))
        even, odd = x[..., 0 : self.rope_dims : 2], x[..., 1 : self.rope_dims : 2]
        turned = x.copy()
        turned[..., 0 : self.rope_dims : 2] = even * cosine - odd * sine
        turned[..., 1 : self.rope_dims : 2] = even * sine + odd * cosine
        return turned

    def attention(self, x: np.ndarray, layer: str) -> np.ndarray:
        count = x.shape[0]
        q, k, v = (x @ self.weight(f"{layer}.attn_{name}").T for name in "qkv")
        q = self.rope(q.reshape(count, self.heads, -1))
        k = self.rope(k.reshape(count, self.kv_heads, -1))
        v = v.reshape(count, self.kv_heads, -1)
        future = np.triu(np.full((count, count), -np.inf, dtype=np.float32), 1)
        scale = np.float32(1.0 / np.sqrt(q.shape[-1]))
        out = np.empty_like(q)
        for head in range(self.heads):
            source = head * self.kv_heads // self.heads
            scores = q[:, head] @ k[:, source].T * scale + future
            weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
            weights /= weights.sum(axis=-1, keepdims=True)
            out[:, head] = weights @ v[:, source]
        return out.reshape(count, -1) @ self.weight(f"{layer}.attn_output").T

    def mlp(self, x: np.ndarray, layer: str) -> np.ndarray:
        gate = x @ self.weight(f"{layer}.ffn_gate").T
        up = x @ self.weight(f"{layer}.ffn_up").T
        return (gate / (1.0 + np.exp(-gate)) * up) @ self.weight(f"{layer}.ffn_down").T

    def logits(self, ids: list[int]) -> np.ndarray:
        """One row of the vocabulary per position."""
        embedding = self.weight("token_embd")
        x = embedding[ids]
        for index in range(self.layers):
            layer = f"blk.{index}"
            x = x + self.attention(self.norm(x, f"{layer}.attn_norm"), layer)
            x = x + self.mlp(self.norm(x, f"{layer}.ffn_norm"), layer)
        head = self.weight("output") if "output.weight" in self.tensors else embedding
        return self.norm(x, "output_norm") @ head.T


def log_softmax(row: np.ndarray) -> np.ndarray:
    row = row.astype(np.float64)
    row = row - row.max()
    return row - np.log(np.exp(row).sum())


def mean_divergence(oracle: np.ndarray, other: np.ndarray) -> float:
    """Mean over the positions of KL(oracle || other), in nats."""
    total = 0.0
    for wanted, got in zip(oracle, other, strict=True):
        wanted, got = log_softmax(wanted), log_softmax(got)
        total += float(np.sum(np.exp(wanted) * (wanted - got)))
    return total / len(oracle)


def rows(raw: bytes, count: int, source: str) -> np.ndarray:
    """The logits in `raw`, which must be `count` rows."""
    values = np.frombuffer(raw, dtype="<f4")
    if count == 0 or len(values) == 0 or len(values) % count != 0:
        sys.exit(f"{source}: {len(values)} numbers are not {count} rows of logits")
    return values.reshape(count, -1)


def run(*command: str | Path) -> bytes:
    return subprocess.run(
        [str(part) for part in command], check=True, stdout=subprocess.PIPE
    ).stdout


def token_ids(binary: Path, model: str) -> list[int]:
    """The text as tokens of `model`, by the engine's own tokenizer."""
    out = run(binary, "tokenize", model, TEXT.read_text(encoding="utf-8"), "--json")
    ids = json.loads(out)["ids"]
    if len(ids) < MINIMUM_POSITIONS:
        sys.exit(f"{TEXT} has {len(ids)} tokens; at least {MINIMUM_POSITIONS} are needed")
    return ids


def engine_logits(target: Path, model: Path, ids: Path, kv_type: str | None) -> bytes:
    """What the engine computes, by its example program."""
    options = ["--kv-type", kv_type] if kv_type else []
    return run(target / "examples" / "dump_logits", model, ids, *options)


def main() -> None:
    parser = argparse.ArgumentParser(prog="cargo xtask kl", description=__doc__)
    parser.add_argument("--target", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--model", type=Path, required=True, help="a GGUF file")
    parser.add_argument("--kv-type", help="the engine's type of K and V: f32, f16 or q8_0")
    parser.add_argument("--peer-logits", type=Path, help="a file of the peer's logits")
    parser.add_argument("--peer", help="a program that writes the peer's logits")
    options = parser.parse_args()

    ids = token_ids(options.target / "refrain", str(options.model))
    ids_file = options.target / "kl-ids.json"
    ids_file.write_text(json.dumps(ids), encoding="utf-8")
    oracle = Oracle(options.model).logits(ids)
    logits = engine_logits(options.target, options.model, ids_file, options.kv_type)
    engine = rows(logits, len(ids), "engine")
    ours = mean_divergence(oracle, engine)
    print(f"positions          {len(ids)}  ({ids_file})")
    print(f"engine mean KL     {ours:.6e}")
    peer = None
    if options.peer_logits:
        peer = options.peer_logits.read_bytes()
    elif options.peer:
        peer = run(options.peer, options.model, ids_file)
    if peer is not None:
        theirs = mean_divergence(oracle, rows(peer, len(ids), "peer"))
        print(f"peer mean KL       {theirs:.6e}")
        print(f"engine / peer      {ours / theirs:.3f}")


if __name__ == "__main__":
    main()
