"""The engine's next-token distributions, against a float forward over the same weights."""

import os
import re
import subprocess
import sys

from harness import BINARY, ROOT

# Mean KL divergence in nats: what int8 activations cost, with a margin.
LIMIT = 0.004


def test_the_engine_is_close_to_a_float_forward():
    program = ROOT / "xtask" / "python" / "kl.py"
    model = os.environ["REFRAIN_SMOLLM2"]
    done = subprocess.run(
        [sys.executable, program, "--target", BINARY.parent, "--model", model],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    measured = float(re.search(r"engine mean KL\s+(\S+)", done.stdout).group(1))
    assert 0 <= measured < LIMIT, done.stdout
