"""Draws the pictures of the documentation: what commands print on a terminal, as SVG.

Run by `cargo xtask pictures`, on the binary that REFRAIN_BINARY names. With `--check` nothing is
drawn; it fails where a picture's text is no more what its command prints. Numbers may differ a
little there, since instruction sets round differently.
"""

import os
import re
import shlex
import subprocess
import sys
import unicodedata
from pathlib import Path
from xml.etree import ElementTree

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
PICTURES = {
    "trace.svg": "refrain trace -p 'The cat sat on'",
    "trace-decode.svg": "refrain trace -p 'The cat sat on' --rows --decode 2 --top 3",
    "trace-explain-zh.svg": "refrain trace -p '今天天气怎么样？' --explain --lang zh",
}
COLUMNS = 80
# Of one character, in pixels.
WIDTH, HEIGHT, FONT = 8.4, 18, 14
MARGIN = 16
BACKGROUND, PLAIN, DIM = "#1e2127", "#dcdfe4", "#8b919c"
COLOURS = {"36": "#56b6c2", "32": "#98c379"}
ESCAPE = re.compile(r"\x1b\[([\d;]*)m")
WORDS = re.compile(r"\S+(?: \S+)*")
BLOCKS = "▏▎▍▌▋▊▉█"
SVG = "{http://www.w3.org/2000/svg}"
NUMBER = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")
# How far a number of a picture may be from today's, as a share of it, or of one where it is less.
TOLERANCE = 0.05


def printed(command):
    """What `command` prints, with the colours of a terminal."""
    _, *arguments = shlex.split(command)
    environment = {**os.environ, "CLICOLOR_FORCE": "1", "LC_ALL": "C.UTF-8"}
    environment.pop("NO_COLOR", None)
    done = subprocess.run(
        [os.environ["REFRAIN_BINARY"], *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        check=True,
        encoding="utf-8",
    )
    return done.stdout


def columns(character):
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def cells(line):
    """(column, character, its style as SGR codes) of each character of a line."""
    column, codes = 0, frozenset()
    for index, part in enumerate(ESCAPE.split(line)):
        if index % 2:
            new = frozenset(part.split(";"))
            codes = frozenset() if new & {"0", ""} else codes | new
            continue
        for character in part:
            yield column, character, codes
            column += columns(character)


def runs(line):
    """The characters of a line, those together that are drawn alike."""
    run = []
    for column, character, codes in cells(line):
        kind = (codes, columns(character), character in BLOCKS)
        if run and run[0] == kind:
            run[2].append(character)
            continue
        if run:
            yield run
        run = [kind, column, [character]]
    if run:
        yield run


def draw_run(parent, run, top):
    (codes, width, blocks), column, characters = run
    text, left = "".join(characters), MARGIN + column * WIDTH
    colour = next((COLOURS[code] for code in codes if code in COLOURS), PLAIN)
    if blocks:
        # A font's blocks would leave gaps.
        eighths = sum(BLOCKS.index(character) + 1 for character in characters)
        bar = {"x": left, "y": top + 3, "width": eighths / 8 * WIDTH, "height": HEIGHT - 5}
        attributes = {name: f"{value:g}" for name, value in bar.items()}
        ElementTree.SubElement(parent, "rect", fill=colour, **attributes)
        return
    # Not every program keeps spaces: what several of them part is placed on its own.
    for words in WORDS.finditer(text):
        part = ElementTree.SubElement(
            parent,
            "text",
            x=f"{left + words.start() * width * WIDTH:g}",
            y=f"{top + FONT:g}",
            fill=DIM if "2" in codes else colour,
            textLength=f"{len(words[0]) * width * WIDTH:g}",
        )
        if "1" in codes:
            part.set("font-weight", "bold")
        part.text = words[0]


def drawn(command, output):
    """A picture of a terminal, in which `command` was given and printed `output`."""
    lines = [f"\x1b[2m$\x1b[0m \x1b[1m{command}\x1b[0m", *output.splitlines()]
    width, height = 2 * MARGIN + COLUMNS * WIDTH, 2 * MARGIN + len(lines) * HEIGHT
    svg = ElementTree.Element(
        "svg",
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width:g} {height:g}",
        width=f"{width:g}",
        height=f"{height:g}",
    )
    style = ElementTree.SubElement(svg, "style")
    style.text = (
        "text{font-family:'DejaVu Sans Mono',Menlo,Consolas,'Noto Sans Mono CJK SC',monospace;"
        f"font-size:{FONT}px}}"
    )
    ElementTree.SubElement(svg, "title").text = command
    ElementTree.SubElement(svg, "rect", width="100%", height="100%", rx="8", fill=BACKGROUND)
    for index, line in enumerate(lines):
        group = ElementTree.SubElement(svg, "g")
        for run in runs(line):
            draw_run(group, run, MARGIN + index * HEIGHT)
    ElementTree.indent(svg, " ")
    return ElementTree.tostring(svg, encoding="unicode") + "\n"


def texts(svg):
    """The lines of a picture, as words."""
    root = ElementTree.fromstring(svg)
    groups = root.iter(f"{SVG}g")
    return [" ".join(text.text for text in group.iter(f"{SVG}text")).split() for group in groups]


def alike(old, new):
    """Whether two words are the same, but for a little in their numbers."""
    if NUMBER.sub("", old) != NUMBER.sub("", new):
        return False
    pairs = zip(map(float, NUMBER.findall(old)), map(float, NUMBER.findall(new)), strict=True)
    return all(abs(a - b) <= TOLERANCE * max(1, abs(b)) for a, b in pairs)


def differences(old, new):
    """The lines of a picture that are not what is printed now."""
    if len(old) != len(new):
        return [f"{len(old)} lines, now {len(new)}"]
    return [
        f"{' '.join(before)!r}, now {' '.join(after)!r}"
        for before, after in zip(old, new, strict=True)
        if len(before) != len(after) or not all(map(alike, before, after))
    ]


def main():
    check = sys.argv[1:] == ["--check"]
    FOLDER.mkdir(parents=True, exist_ok=True)
    found = []
    for name, command in PICTURES.items():
        path, picture = FOLDER / name, drawn(command, printed(command))
        if not check:
            path.write_text(picture, encoding="utf-8")
            print(path.relative_to(Path.cwd()))
            continue
        old = path.read_text(encoding="utf-8") if path.exists() else picture[:0]
        lines = differences(texts(old), texts(picture)) if old else ["there is no picture"]
        found += [f"{name}: {line}" for line in lines]
    if found:
        print(*found, "`cargo xtask pictures` draws them anew", sep="\n", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
