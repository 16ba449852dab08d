"""OpenAI's `prompt_cache_diagnostics`, made of the same comparison as the verdict."""

import pydantic
import pytest
from openai.types.responses.response import PromptCacheDiagnostics
from test_reasons import TEXT, Talk, model

from harness import Server

__all__ = ["model"]
TOOL = {"type": "function", "function": {"name": "tide", "description": "Tells the tide."}}
QUESTION = [{"role": "system", "content": TEXT}, {"role": "user", "content": "Which stone?"}]


@pytest.fixture(scope="module")
def server(model):
    template = model / "chat_template.jinja"
    tools = "{% for tool in tools or [] %}{{ tool | tojson }}\n{% endfor %}"
    template.write_text(tools + template.read_text())
    with Server(str(model)) as running:
        yield running


def ask(server: Server, messages: list[dict], compared_with: str | None, **fields):
    options = {"ttl": "30m"} | ({"comparison_response_id": compared_with} if compared_with else {})
    return server.client().chat.completions.create(
        model="gpt2",
        messages=messages,
        max_tokens=2,
        temperature=0,
        extra_body={"prompt_cache_options": options} | fields,
    )


def diagnose(server: Server, messages: list[dict], compared_with: str, **fields):
    """The diagnostics, as OpenAI's own type reads them, and the verdict."""
    extra = ask(server, messages, compared_with, **fields).model_extra
    assert "prompt_cache_options.comparison_response_id" not in extra["refrain"]["ignored"]
    read = pydantic.TypeAdapter(PromptCacheDiagnostics).validate_python
    return read(extra["prompt_cache_diagnostics"]), extra["refrain"]["verdict"]


def changed(system: str) -> list[dict]:
    return [{"role": "system", "content": system}, QUESTION[1]]


def test_the_same_prefix_is_a_hit(server):
    first = ask(server, QUESTION, None)
    assert "prompt_cache_diagnostics" not in first.model_extra, "nobody asked"
    found, _ = diagnose(server, QUESTION, first.id)
    assert found.type == "cache_hit"
    said = {"role": "assistant", "content": "The last."}
    found, _ = diagnose(server, [*QUESTION, said, QUESTION[1]], first.id)
    assert found.type == "cache_hit"


def test_a_difference_is_a_miss_with_its_place(server):
    first = ask(server, QUESTION, None)
    # Another prompt comes between, so that the verdict is not on the one that is named.
    ask(server, changed(TEXT.replace("Stone 2", "Stone 9")), None)
    other = changed(TEXT.replace("Stone 7", "Stone 6"))
    found, verdict = diagnose(server, other, first.id)
    assert (found.type, found.reason) == ("cache_miss", "input_changed")
    talk = Talk(server)
    begin = len(talk.ids("system: " + TEXT[: TEXT.index("Stone 7")] + "Stone"))
    assert found.comparison_reusable_tokens == begin
    assert found.cache_missed_tokens == verdict["prompt_tokens"] - begin


def test_tools_and_fewer_messages_are_told_apart(server):
    with_tool = {"tools": [TOOL], "tool_choice": "none"}
    first = ask(server, QUESTION, None, **with_tool)
    other = {"type": "function", "function": {"name": "tide", "description": "Says the tide."}}
    found, _ = diagnose(server, QUESTION, first.id, tools=[other], tool_choice="none")
    assert (found.type, found.reason) == ("cache_miss", "tools_changed")
    turns = [{"role": role, "content": "Go on."} for role in ["assistant", "user"] * 2]
    long = ask(server, [*QUESTION, *turns], None)
    short = [QUESTION[0], {"role": "user", "content": "In short: which stone?"}]
    found, _ = diagnose(server, short, long.id)
    assert (found.type, found.reason) == ("cache_miss", "context_compacted")


def test_what_is_not_known_is_said(server):
    first = ask(server, QUESTION, None)
    found, _ = diagnose(server, QUESTION, "chatcmpl-0")
    assert found.type == "comparison_response_not_found"
    found, _ = diagnose(server, QUESTION, first.id, cache_salt="another's")
    assert found.type == "comparison_response_not_found"
    found, _ = diagnose(server, QUESTION, first.id, cache_prompt=False)
    assert found.type == "unavailable"
    body = {"messages": QUESTION, "prompt_cache_options": {"comparison_response_id": 1}}
    refused = server.http().post("/v1/chat/completions", json=body)
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "prompt_cache_options.comparison_response_id"


def test_a_prefix_that_was_lost_has_no_word(server):
    salt = {"cache_salt": "lost"}
    first = ask(server, QUESTION, None, **salt)
    cleared = server.http().post("/refrain/cache/clear", json=salt)
    assert cleared.status_code == 200
    found, verdict = diagnose(server, QUESTION, first.id, **salt)
    assert found.type == "unavailable"
    assert verdict["stop"]["reason"] == "first_request"


def test_a_stream_has_it_in_its_last_chunk(server):
    first = ask(server, QUESTION, None)
    options = {"comparison_response_id": first.id}
    chunks = list(
        server.client().chat.completions.create(
            model="gpt2",
            messages=QUESTION,
            max_tokens=2,
            stream=True,
            extra_body={"prompt_cache_options": options},
        )
    )
    assert chunks[-1].model_extra["prompt_cache_diagnostics"] == {"type": "cache_hit"}
