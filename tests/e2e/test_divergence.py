"""The engine's next-token distributions, against a float forward over the same weights."""

import os
import re
import subprocess
import sys
from pathlib import Path

from harness import BINARY, ROOT

# Mean KL divergence in nats over the text; what int8 activations cost, with a margin.
LIMIT = 0.01


def test_the_engine_is_close_to_a_float_forward(default_model):
    example = BINARY.parent / "examples" / "dump_logits"
    assert example.exists(), "`cargo xtask e2e` builds it"
    done = subprocess.run(
        [sys.executable, ROOT / "xtask" / "python" / "kl.py", "--target", BINARY.parent],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ,
    )
    measured = float(re.search(r"engine mean KL\s+(\S+)", done.stdout).group(1))
    assert Path(example).exists() and 0 <= measured < LIMIT, done.stdout
