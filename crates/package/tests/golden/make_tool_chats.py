"""Makes tool_chats.json: conversations with tools, and digests of what transformers renders of
them with well-known chat templates, the oracle of the templates' tests.

    python make_tool_chats.py cases.json [TEMPLATE CONVERSATION]

Needs `pip install transformers`. cases.json has the templates (huggingface.js's tests). Only
digests are kept, since the renderings repeat the templates' own texts; with the name of a template
and a conversation, its rendering is printed instead.
"""

import copy
import datetime
import hashlib
import json
import pathlib
import sys

from tokenizers import Tokenizer
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast
from transformers.utils import chat_template_utils

CITY = {"type": "string", "description": "Where: <city> & country, “as written”"}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Tells the weather.\nIn °C.",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": CITY,
                    "days": {"type": "integer", "description": "How many", "minimum": 1},
                    "unit": {"type": "string", "description": "Which", "enum": ["°C", "F"]},
                },
                "required": ["city"],
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "now",
            "description": "Tells the time",
            "parameters": {"type": "object", "properties": {}},
        },
    },
]


def call(number, name, arguments):
    function = {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}
    return {"id": f"call0000{number}", "type": "function", "function": function}


def result(number, name, content):
    identity = {"tool_call_id": f"call0000{number}", "name": name}
    return {"role": "tool"} | identity | {"content": content}


SYSTEM = {"role": "system", "content": "Be brief. 简短"}
USER = {"role": "user", "content": "How is the weather in <Köln>?"}
WEATHER = {"city": 'Köln "am" <Rhein> & \\ \n', "days": 3, "unit": "°C"}
ODD = {"a": [1.5, -0.0, 1e-7, 12345678901234567890, None, True, {}], "b": {"c": {"d": "é"}}}
ONE = {"role": "assistant", "content": "", "tool_calls": [call(1, "get_weather", WEATHER)]}
TWO = {
    "role": "assistant",
    "content": "Let me look.",
    "tool_calls": [call(1, "get_weather", WEATHER), call(2, "now", {})],
}
THOUGHT = {"reasoning_content": "A tool knows.", "thinking": "A tool knows."}
CONVERSATIONS = {
    "declared": [SYSTEM, USER],
    "called": [USER, ONE],
    "answered": [USER, ONE, result(1, "get_weather", '{"sky": "clear", "t": 20.5}')],
    "two": [USER, TWO, result(1, "get_weather", "clear"), result(2, "now", "10:00")],
    "on": [
        SYSTEM,
        USER,
        ONE,
        result(1, "get_weather", "clear"),
        {"role": "assistant", "content": "It is clear."},
        {"role": "user", "content": "And now?"},
    ],
    "thought": [USER, ONE | THOUGHT, result(1, "get_weather", "clear")],
    "odd": [USER, ONE | {"tool_calls": [call(1, "now", ODD)]}],
}


class Clock(datetime.datetime):
    """The clock that templates see."""

    @classmethod
    def now(cls):
        return cls(2025, 7, 10)


# Templates that take content only as a list of parts, and in messages of which roles.
TAKE_PARTS = {
    "HuggingFaceTB/SmolVLM-Instruct": ("system", "user", "assistant", "tool"),
    "CohereLabs/command-a-reasoning-08-2025": ("tool",),
}


def with_parts(conversation, roles):
    return [
        message | {"content": [{"type": "text", "text": message["content"]}]}
        if message["role"] in roles
        else message
        for message in conversation
    ]


def with_maps(conversation):
    conversation = copy.deepcopy(conversation)
    for message in conversation:
        for one in message.get("tool_calls", []):
            one["function"]["arguments"] = json.loads(one["function"]["arguments"])
    return conversation


def render(tokenizer, case, conversation, opens):
    """What transformers renders; arguments are maps, as it documents, or else texts. `None` where
    it renders nothing."""
    data = case.get("data", {})
    special = {name: data.get(name, "") for name in ("bos_token", "eos_token")}
    conversation = with_parts(conversation, TAKE_PARTS.get(case["name"], ()))
    for messages in (with_maps(conversation), conversation):
        try:
            return tokenizer.apply_chat_template(
                messages,
                tools=TOOLS,
                chat_template=case["chat_template"],
                add_generation_prompt=opens,
                tokenize=False,
                **special,
            )
        except Exception:
            continue
    return None


def main():
    chat_template_utils.datetime = Clock
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(BPE()))
    cases = json.loads(pathlib.Path(sys.argv[1]).read_text())
    if len(sys.argv) > 2:
        case = next(case for case in cases if case["name"] == sys.argv[2])
        print(render(tokenizer, case, CONVERSATIONS[sys.argv[3]], True), end="")
        return
    renderings = []
    for case in cases:
        for name, conversation in CONVERSATIONS.items():
            text = render(tokenizer, case, conversation, True)
            digest = text is not None and hashlib.sha256(text.encode()).hexdigest()
            renderings.append([case["name"], name, digest or None])
    head = json.dumps({"tools": TOOLS, "conversations": CONVERSATIONS}, indent=1)
    lines = ",\n".join("  " + json.dumps(rendering) for rendering in renderings)
    text = f'{head[:-2]},\n "renderings": [\n{lines}\n ]\n}}\n'
    pathlib.Path(__file__).with_name("tool_chats.json").write_text(text)


main()
