"""The documentation's pictures of terminals show what the commands print."""

import os
import subprocess
import sys

from harness import BINARY, ROOT


def test_the_pictures_show_what_is_printed(default_model):
    done = subprocess.run(
        [sys.executable, ROOT / "xtask" / "python" / "pictures.py", "--check"],
        env={**os.environ, "REFRAIN_BINARY": str(BINARY)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
