"""The tools: what the model may ask for, and who has to agree.

What a tool returns becomes a part of the history, and is sent and kept from then on. So results
are short, and the same for the same notes: sorted, without times.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path

NAME = "^[a-z0-9-]{1,40}$"
TEXT_CHARACTERS = 200
LISTED = 50
REFUSED = "error: the person does not allow this; do not try it again"


def _parameters(**properties: dict) -> dict:
    """A schema of these parameters and no others."""
    names = list(properties)
    schema = {"type": "object", "properties": properties, "required": names}
    return schema | {"additionalProperties": False}


_NAME = {"type": "string", "pattern": NAME}
_TEXT = {"type": "string", "minLength": 1, "maxLength": TEXT_CHARACTERS}
_TOOLS = {
    "write_note": ("Writes a note, in place of what it said.", _parameters(name=_NAME, text=_TEXT)),
    "list_notes": ("The names of all notes.", _parameters()),
    "read_note": ("The text of a note.", _parameters(name=_NAME)),
}

# What is sent with every request. The server puts the tools before the history, often before the
# instructions: they are the first thing that a prompt is made of. They come in one fixed order
# (sorted, since the order of a registry may change), and always all of them: to leave out a tool
# that cannot help right now would compute the whole conversation again.
DEFINITIONS = [
    {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": parameters},
    }
    for name, (description, parameters) in sorted(_TOOLS.items())
]


class Notes:
    """Notes in a folder. `permit` is asked before a tool runs that changes something."""

    CHANGES = frozenset({"write_note"})

    def __init__(self, folder: Path, permit: Callable[[str], bool]) -> None:
        self.folder = folder
        self.permit = permit

    def call(self, name: str, arguments: str) -> str:
        """Runs a tool. Whatever goes wrong is a result too: the model can react to it."""
        if name not in _TOOLS:
            return f"error: there is no tool {name}"
        try:
            given = json.loads(arguments)
            self._check(name, given)
            # Asked after the check, so that nobody is asked in vain, and with what will be done.
            if name in self.CHANGES and not self.permit(f"{name} {arguments}"):
                return REFUSED
            return getattr(self, name)(**given)
        except (OSError, ValueError) as error:
            return f"error: {error}"

    @staticmethod
    def _check(name: str, given: object) -> None:
        """Never trust a model's arguments, even where a schema was sent along."""
        wanted = _TOOLS[name][1]["properties"]
        if not isinstance(given, dict) or given.keys() != wanted.keys():
            raise ValueError(f"{name} takes an object with {sorted(wanted) or 'nothing'}")
        if not all(isinstance(value, str) for value in given.values()):
            raise ValueError("all arguments are texts")
        if "name" in given and not re.fullmatch(NAME, given["name"]):
            raise ValueError(f"a name is of the form {NAME}")  # It cannot leave the folder.
        if len(given.get("text", "")) > TEXT_CHARACTERS:
            raise ValueError(f"a text has {TEXT_CHARACTERS} characters at most")

    def list_notes(self) -> str:
        names = sorted(path.stem for path in self.folder.glob("*.txt"))
        return "\n".join(names[:LISTED]) or "there are no notes"

    def read_note(self, name: str) -> str:
        with (self.folder / f"{name}.txt").open(encoding="utf-8") as note:
            return note.read(TEXT_CHARACTERS)

    def write_note(self, name: str, text: str) -> str:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / f"{name}.txt").write_text(text, encoding="utf-8")
        return "written"
