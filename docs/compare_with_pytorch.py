#!/usr/bin/env python3
"""Compares what `refrain trace --save` wrote with what PyTorch computes on the same model.

    refrain trace FOLDER -p 'The cat sat on' --decode 2 --save cat.safetensors
    python docs/compare_with_pytorch.py FOLDER cat.safetensors

FOLDER is a Hugging Face folder (GPT-2, Llama and what is shaped like it) or a .gguf file. The
token ids come from the saved file, so that both compute the same; PyTorch runs them through
transformers in float32 with eager attention, the decode steps one by one on its own cache. A line
for each tensor says the largest difference of two numbers, and its share of PyTorch's largest
number; above --tolerance of that share, the tensor differs. Save whole tensors: a part of one has
another shape, and differs.

A model with float32 weights is within 1e-4. Quantized weights differ by more, and by more from
layer to layer, since Refrain also rounds the inputs of their products to 8 bits, and K and V to
16-bit floats.

Exits with 0 if all are near, 1 if one differs, 2 if something cannot be used. Needs

    pip install torch 'transformers>=5' safetensors        (and gguf accelerate, for .gguf)
"""

import argparse
import inspect
import json
import sys
from pathlib import Path

try:
    import torch
    import transformers
    from safetensors import SafetensorError, safe_open
except ImportError as error:
    print(f"{error}: pip install torch 'transformers>=5' safetensors", file=sys.stderr)
    sys.exit(2)

KINDS = ("gpt2", "llama")


class Unusable(Exception):
    """What was given cannot be compared; the text says why."""


class Recorder:
    """Keeps every tensor that passes a tap of Refrain's, by its name there.

    Names are TransformerLens's, except that a norm's `hook_normalized` is what the norm's module
    returns, gain included.
    """

    def __init__(self, model):
        self.model = model
        self.cache = transformers.DynamicCache()
        self.taps = {}
        kind = model.config.model_type
        if kind not in KINDS:
            raise Unusable(f"the model is {kind!r}; this script knows {' and '.join(KINDS)}")
        (self._hook_gpt2 if kind == "gpt2" else self._hook_llama)(model)

    def step(self, ids):
        """Runs `ids` on what the cache holds; gives every tensor of the step, with its batch."""
        self.taps = {}
        # Newer versions of transformers call it so.
        known = inspect.signature(self.model.forward).parameters
        cache = {"cache" if "cache" in known else "past_key_values": self.cache}
        ids = torch.tensor([ids])
        with torch.no_grad():
            output = self.model(ids, **cache, use_cache=True, output_attentions=True)
        for index, pattern in enumerate(output.attentions):
            self._keep(f"blocks.{index}.attn.hook_pattern", pattern)
        self._keep("logits", output.logits)
        for index, layer in enumerate(self.cache.layers):
            self._keep(f"blocks.{index}.attn.hook_attn_scores", self._scores(index, layer.keys))
            self._keep(f"kv_cache.{index}.keys", layer.keys)
            self._keep(f"kv_cache.{index}.values", layer.values)
        return self.taps

    def _scores(self, index, keys):
        """q·k / √(width), -inf where the mask hides a key: inside attention, no module gives it."""
        at = f"blocks.{index}.attn."
        queries = self.taps.get(at + "hook_rot_q", self.taps[at + "hook_q"]).transpose(1, 2)
        keys = keys.repeat_interleave(queries.shape[1] // keys.shape[1], dim=1)
        scores = queries @ keys.transpose(2, 3) / queries.shape[-1] ** 0.5
        rows, positions = scores.shape[-2:]
        visible = torch.ones(rows, positions, dtype=torch.bool).tril(positions - rows)
        return scores.masked_fill(~visible, -torch.inf)

    def _keep(self, name, value, heads=None):
        if heads:
            value = value.reshape(*value.shape[:2], heads, -1)
        self.taps[name] = value.detach().float().clone()

    def _output(self, module, name, heads=None):
        def hook(_module, _inputs, output):
            self._keep(name, output[0] if isinstance(output, tuple) else output, heads)

        module.register_forward_hook(hook)

    def _input(self, module, name, heads=None):
        module.register_forward_pre_hook(lambda _, inputs: self._keep(name, inputs[0], heads))

    def _hook_gpt2(self, model):
        body, heads = model.transformer, model.config.n_head
        self._output(body.wte, "hook_embed")
        self._output(body.wpe, "hook_pos_embed")
        for index, block in enumerate(body.h):
            at = f"blocks.{index}."

            def split(_module, _inputs, output, at=at):
                for name, part in zip("qkv", output.chunk(3, dim=-1), strict=True):
                    self._keep(f"{at}attn.hook_{name}", part, heads)

            block.attn.c_attn.register_forward_hook(split)
            self._input(block.ln_1, at + "hook_resid_pre")
            self._output(block.ln_1, at + "ln1.hook_normalized")
            self._input(block.attn.c_proj, at + "attn.hook_z", heads)
            self._output(block.attn.c_proj, at + "hook_attn_out")
            self._input(block.ln_2, at + "hook_resid_mid")
            self._output(block.ln_2, at + "ln2.hook_normalized")
            self._output(block.mlp.c_fc, at + "mlp.hook_pre")
            self._output(block.mlp.act, at + "mlp.hook_post")
            self._output(block.mlp, at + "hook_mlp_out")
            self._output(block, at + "hook_resid_post")
        self._output(body.ln_f, "ln_final.hook_normalized")

    def _hook_llama(self, model):
        body, config = model.model, model.config
        heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
        self._output(body.embed_tokens, "hook_embed")
        for index, block in enumerate(body.layers):
            at = f"blocks.{index}."
            self._input(block.input_layernorm, at + "hook_resid_pre")
            self._output(block.input_layernorm, at + "ln1.hook_normalized")
            self._output(block.self_attn.q_proj, at + "attn.hook_q", heads)
            self._output(block.self_attn.k_proj, at + "attn.hook_k", kv_heads)
            self._output(block.self_attn.v_proj, at + "attn.hook_v", kv_heads)
            self._input(block.self_attn.o_proj, at + "attn.hook_z", heads)
            self._output(block.self_attn.o_proj, at + "hook_attn_out")
            self._input(block.post_attention_layernorm, at + "hook_resid_mid")
            self._output(block.post_attention_layernorm, at + "ln2.hook_normalized")
            self._output(block.mlp.gate_proj, at + "mlp.hook_pre")
            self._output(block.mlp.up_proj, at + "mlp.hook_pre_linear")
            self._input(block.mlp.down_proj, at + "mlp.hook_post")
            self._output(block.mlp, at + "hook_mlp_out")
            self._output(block, at + "hook_resid_post")
        self._output(body.norm, "ln_final.hook_normalized")
        self._catch_rotated()

    def _catch_rotated(self):
        """Rotated q and k are no module's output: they are caught at the function that rotates."""
        code = sys.modules[type(self.model).__module__]
        rotate, layers = code.apply_rotary_pos_emb, self.model.config.num_hidden_layers
        calls = 0

        def rotate_and_keep(*arguments, **options):
            nonlocal calls
            rotated, at = rotate(*arguments, **options), f"blocks.{calls % layers}.attn."
            calls += 1
            for name, value in zip(("hook_rot_q", "hook_rot_k"), rotated, strict=True):
                self._keep(at + name, value.transpose(1, 2))
            return rotated

        code.apply_rotary_pos_emb = rotate_and_keep


def load(path):
    """The model of a Hugging Face folder or a .gguf file, in float32."""
    if not path.exists():
        raise Unusable(f"{path} does not exist; give the folder that refrain trace was given")
    options = {"attn_implementation": "eager", "dtype": torch.float32}
    if path.is_file():
        options["gguf_file"] = path.name
        path = path.parent
    try:
        model = transformers.AutoModelForCausalLM.from_pretrained(path, **options)
    except (OSError, ValueError, ImportError, KeyError) as error:
        raise Unusable(f"transformers cannot load {path}: {error}") from error
    return model.eval()


def read(path):
    """The tensors of a saved file, the prompt's token ids, and those that were decoded."""
    try:
        with safe_open(path, framework="pt") as file:
            facts = json.loads((file.metadata() or {}).get("refrain.trace", "null"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise Unusable(f"cannot read {path}: {error}") from error
    if facts is None:
        raise Unusable(f"{path} was not saved by refrain trace --save FILE.safetensors")
    return tensors, facts["tokens"], facts["decoded"]


def reference(model, tokens, decoded):
    """What PyTorch computes: the prompt in one step, then each decoded token."""
    recorder = Recorder(model)
    computed = dict(recorder.step(tokens))
    for index, token in enumerate(decoded):
        step = recorder.step([token])
        computed |= {f"decode.{index}.{name}": tensor for name, tensor in step.items()}
    return computed


def compare(saved, computed, tolerance):
    """Prints a line for each saved tensor; gives how many differ."""
    width = max(map(len, saved), default=0)
    print(f"{'tensor':<{width}}  {'max|Δ|':>8}  {'share':>8}  shape")
    differing = 0
    for name in sorted(saved, key=list(computed).index):
        ours, theirs = saved[name].float(), computed[name]
        shape = str(tuple(ours.shape))
        if ours.shape != theirs.shape:
            differing += 1
            print(f"{name:<{width}}  DIFFERS: shape {shape}, in PyTorch {tuple(theirs.shape)}")
            continue
        # What the mask hides has the score -inf on both sides; -inf on one side differs.
        hidden = (ours == -torch.inf) & (theirs == -torch.inf)
        ours, theirs = ours[~hidden], theirs[~hidden]
        difference = (ours - theirs).abs().max().item() if ours.numel() else 0.0
        largest = theirs.abs().max().item() if ours.numel() else 0.0
        share = difference / largest if difference else 0.0
        near = share <= tolerance  # False for NaN, too
        differing += not near
        verdict = "" if near else "  DIFFERS"
        print(f"{name:<{width}}  {difference:8.1e}  {share:8.1e}  {shape}{verdict}")
    return differing


def run(arguments):
    saved, tokens, decoded = read(arguments.saved)
    computed = reference(load(arguments.model), tokens, decoded)
    unknown = sorted(saved.keys() - computed.keys())
    if unknown:
        raise Unusable(f"PyTorch's model has no {unknown[0]}: is it the same model?")
    if not saved:
        raise Unusable(f"{arguments.saved} holds no tensor")
    differing = compare(saved, computed, arguments.tolerance)
    print(f"{len(saved) - differing} of {len(saved)} tensors within {arguments.tolerance:g}")
    return 1 if differing else 0


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path, help="a Hugging Face folder, or a .gguf file")
    parser.add_argument("saved", type=Path, help="what refrain trace --save FILE.safetensors wrote")
    parser.add_argument(
        "--tolerance",
        type=float,
        default=1e-4,
        help="the largest difference that passes, as a share of the largest number of PyTorch's "
        "tensor [default: 1e-4]",
    )
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        return run(arguments)
    except Unusable as problem:
        print(f"{parser.prog}: {problem}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
