"""`refrain why`: what it says beside the verdict, which other tests hold to the server's."""

import json

import pytest

from harness import command, document
from terminal import columns

TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}


@pytest.fixture
def files(tmp_path):
    """Writes two requests, and gives the flags that name them."""

    def write(first: dict, second: dict) -> list[str]:
        flags = []
        for flag, body in [("--prompt", first), ("--against", second)]:
            path = tmp_path / f"{flag[2:]}.json"
            path.write_text(json.dumps(body))
            flags += [flag, str(path)]
        return flags

    return write


def chat(system: str, **fields) -> dict:
    said = [("system", system), ("user", "Hi")]
    return {"messages": [{"role": role, "content": text} for role, text in said], **fields}


def test_each_request_goes_on_with_its_own_text(default_model, files):
    system = "You are a helpful agent.\nCurrent time: 2026-01-05 {}\nTools: none. Be brief."
    flags = files(chat(system.format("10:41:07")), chat(system.format("10:42:33")))
    lines = command("why", *flags).stdout.splitlines()
    (held,) = [line for line in lines if line.startswith("cached ")]
    (now,) = [line for line in lines if line.startswith("now ")]
    assert "10:4[1]:07⏎Tools" in held and "10:4[2]:33⏎Tools" in now
    assert not any("→" in line for line in lines)
    excerpt = document("why", *flags)["excerpt"]
    assert excerpt["cached_after"].startswith(":07\nTools")
    assert excerpt["after"].startswith(":33\nTools")
    # Where both go on alike, one line says it.
    flags = files(chat(system.format("10:41:07")), chat(system.format("10:41:08")))
    lines = command("why", *flags).stdout.splitlines()
    assert [line for line in lines if "10:41:0[7→8]⏎Tools" in line]
    assert not any(line.startswith(("cached ", "now ")) for line in lines)


def test_tools_that_the_template_does_not_read_are_said_to_be_ignored(server, files):
    other = json.loads(json.dumps(TOOL).replace("weather", "clock"))
    first = chat("Be brief.", tools=[TOOL], tool_choice="none", max_tokens=1)
    second = {**first, "tools": [TOOL, other]}
    with server.http() as http:
        answer = http.post("/v1/chat/completions", json=second).json()["refrain"]
        named = {"type": "function", "function": {"name": "nothing"}}
        refusal = http.post("/v1/chat/completions", json={**second, "tool_choice": named})
    flags = files(first, second)
    report = document("why", *flags)
    assert report["verdict"]["stop"]["reason"] == "end_of_prompt"
    assert report["ignored"] == answer["ignored"] == ["tools"]
    assert report["prompt"]["ignored"] == report["against"]["ignored"] == ["tools"]
    assert report["prompt"]["refused"] is report["against"]["refused"] is None
    shown = " ".join(command("why", *flags).stdout.split())
    assert "ignored tools in both; this model's chat template reads no tools" in shown
    assert "refused" not in shown
    # What a server would refuse, it says in the same words.
    flags = files(first, {**second, "tool_choice": named})
    report = document("why", *flags)
    assert report["against"]["refused"] == refusal.json()["error"]["message"]
    assert report["prompt"]["refused"] is None
    done = command("why", *flags)
    shown = " ".join(done.stdout.split())
    assert "a server does not take the second as it is: 'tool_choice' names nothing" in shown
    assert [line for line in done.stdout.splitlines() if columns(line) > 80] == []


def test_other_fields_without_effect_are_named_too(default_model, files):
    flags = files(chat("Be brief.", colour="red"), chat("Be brief.", max_tokens="many"))
    report = document("why", *flags)
    assert (report["prompt"]["ignored"], report["ignored"]) == (["colour"], [])
    shown = command("why", *flags).stdout
    assert "colour in the first" in shown and "reads no tools" not in shown
    assert "the second as it is: 'max_tokens' must be" in shown
    assert report["prompt"]["refused"] is None
