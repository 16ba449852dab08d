"""The documents' ```console blocks: run, compared with what is written, or written anew.

A block begins with its command, `$ refrain …` or `$ curl …`, and goes on with what that prints.
Commands run in the repository's root, in a shell; the blocks of one document share one server.

    python tests/e2e/documents.py        writes what the commands print into the documents
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from harness import BINARY, ROOT, Server

PAIR = ("docs/article.md", "docs/article.zh-CN.md")
DOCUMENTS = [*PAIR, "README.md", "README.zh-CN.md"]
ADDRESS = "127.0.0.1:8080"
BLOCK = re.compile(r"^```console\n\$ ((?:.*\\\n)*.*\n)((?:(?!```).*\n)*?)```$", re.MULTILINE)
# What is another number each time, or on another machine.
MASKED = [
    (re.compile(r"(chatcmpl|cmpl)-[0-9A-Za-z-]+"), "ID"),
    (re.compile(r'("\w+_ms"|"created"|"since"): [0-9.]+'), r"\1: TIME"),
    (re.compile(r"[0-9.]+ (ms|s|tok/s)\b"), r"TIME \1"),
    (re.compile(r"[█▏▎▍▌▋▊▉]+"), "BAR"),
    (re.compile(r"\S*/models/\S+"), "PATH"),
]
HEADING = re.compile(r"^## (.*)$", re.MULTILINE)
# A block that any model can run, with or without a chat template, in little time.
OF_ANY_MODEL = re.compile(r"refrain (?:trace|info|tokenize|why)\b(?!.*(?:--chat|\.json))")
NUMBER = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")
# Instruction sets sum in different orders.
TOLERANCE_ABSOLUTE, TOLERANCE_RELATIVE = 0.01, 0.02


# Where this is missing, the blocks that use it are not run.
OPTIONAL = "jq"


@dataclass
class Block:
    """One command, and what its document says that it prints."""

    document: str
    line: int
    command: str
    output: str


def section(block: Block) -> str:
    """The heading that the block stands under."""
    text = (ROOT / block.document).read_text(encoding="utf-8")
    above = "".join(text.splitlines(keepends=True)[: block.line])
    return HEADING.findall(above)[-1]


def of_model(block: Block, folder: Path) -> Block | None:
    """The block with another model behind its command's name; nothing where it needs a chat
    model, and for the checks, which have tests of their own.
    """
    found = OF_ANY_MODEL.match(block.command)
    if found is None:
        return None
    command = f"{found[0]} '{folder}'{block.command[found.end() :]}"
    return replace(block, command=command)


def can_run(block: Block) -> bool:
    """Whether this machine has what the command uses."""
    return f"| {OPTIONAL} " not in block.command or shutil.which(OPTIONAL) is not None


def blocks(document: str) -> list[Block]:
    """The blocks of a document that are run."""
    text = (ROOT / document).read_text(encoding="utf-8")
    return [
        Block(document, text.count("\n", 0, found.start()) + 1, found[1], found[2])
        for found in BLOCK.finditer(text)
        if found[1].startswith(("refrain ", "curl "))
    ]


def run(block: Block, server: Server | None) -> str:
    """What the command prints on stdout."""
    command = block.command
    if server is not None:
        command = command.replace(ADDRESS, server.url.removeprefix("http://"))
    env = {name: value for name, value in os.environ.items() if not name.startswith("REFRAIN_")}
    env |= {"LC_ALL": "C.UTF-8", "NO_COLOR": "1"}
    script = f'refrain() {{ "{BINARY}" "$@"; }}\nset -o pipefail\n{command}'
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=ROOT,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
    )
    # 3 is a check that finds something; a pipe that closes early is no failure either.
    assert done.returncode in (0, 3), f"{block.command}: {done.returncode}\n{done.stderr}"
    return done.stdout


def server_for(found: list[Block]) -> Server | None:
    """A fresh server, if a block talks to one."""
    return Server("smollm2") if any(ADDRESS in block.command for block in found) else None


def differences(written: str, printed: str) -> Iterator[str]:
    """The lines that say something else: another text, or a number that is not near."""
    left, right = written.splitlines(), printed.splitlines()
    if len(left) != len(right):
        yield f"{len(left)} lines are written, {len(right)} are printed"
    for ours, theirs in zip(left, right, strict=False):
        texts = [" ".join(NUMBER.sub("#", mask(line)).split()) for line in (ours, theirs)]
        numbers = [
            [float(number) for number in NUMBER.findall(mask(line))] for line in (ours, theirs)
        ]
        if texts[0] != texts[1] or not all(map(near, *numbers)):
            yield f"written: {ours}\nprinted: {theirs}"


def mask(line: str) -> str:
    for pattern, name in MASKED:
        line = pattern.sub(name, line)
    return line


def near(ours: float, theirs: float) -> bool:
    return abs(ours - theirs) <= TOLERANCE_ABSOLUTE + TOLERANCE_RELATIVE * abs(theirs)


def rewrite(document: str) -> int:
    """Writes what the commands print into the document; the number of blocks that changed."""
    found = blocks(document)
    server = server_for(found)
    outputs: dict[int, str] = {}
    with server or open(os.devnull, encoding="utf-8"):
        for block in filter(can_run, found):
            printed = run(block, server)
            if any(differences(block.output, printed)):
                outputs[block.line] = printed
    path = ROOT / document
    text = path.read_text(encoding="utf-8")

    def renewed(match: re.Match) -> str:
        line = text.count("\n", 0, match.start()) + 1
        return f"```console\n$ {match[1]}{outputs.get(line, match[2])}```"

    path.write_text(BLOCK.sub(renewed, text), encoding="utf-8")
    return len(outputs)


if __name__ == "__main__":
    for name in sys.argv[1:] or DOCUMENTS:
        if Path(ROOT / name).exists():
            print(f"{name}: {rewrite(name)} blocks written anew")
