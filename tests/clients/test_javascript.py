"""The clients in JavaScript: their tests are written in their language."""

import os
import re
import subprocess
from pathlib import Path

FOLDER = Path(__file__).parent / "js"


def test_the_clients_of_openai_anthropic_and_vercel(server):
    done = subprocess.run(
        ["node", "--test", "--test-reporter=tap", "clients.test.js"],
        cwd=FOLDER,
        env=os.environ | {"REFRAIN_URL": server.url},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout
    assert int(re.search(r"^# pass (\d+)$", done.stdout, re.MULTILINE).group(1)) == 14
