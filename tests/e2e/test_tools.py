"""Tools, constrained answers and their bits, through both official clients."""

import json
import re

import anthropic
import pytest
from jsonschema import Draft202012Validator

from harness import text_of

MODEL = "smollm2"
QUESTION = [{"role": "user", "content": "What is the weather in Paris today?"}]
PARAMETERS = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 20},
        "unit": {"enum": ["celsius", "fahrenheit"]},
    },
    "required": ["city", "unit"],
    "additionalProperties": False,
}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city.",
        "parameters": PARAMETERS,
    },
}
CLOCK = {
    "type": "function",
    "function": {"name": "get_time", "parameters": {"type": "object", "properties": {}}},
}
BAD = {"type": "object", "properties": {"a": {"$ref": "http://elsewhere"}}}
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {"type": "array", "items": {"enum": ["a", "b", "c"]}, "maxItems": 3},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def claude(server):
    return anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=60)


def chat(client, messages=QUESTION, **options):
    options.setdefault("max_tokens", 96)
    return client.chat.completions.create(model=MODEL, messages=messages, **options)


def valid(schema, text: str):
    value = json.loads(text)
    Draft202012Validator(schema).validate(value)
    return value


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("choice", ["required", "named"])
def test_a_call_that_must_be_made_has_arguments_by_the_schema(client, seed, choice):
    named = {"type": "function", "function": {"name": "get_weather"}}
    answer = chat(
        client,
        tools=[WEATHER, CLOCK],
        tool_choice=named if choice == "named" else "required",
        parallel_tool_calls=False,
        seed=seed,
    )
    message = answer.choices[0].message
    assert answer.choices[0].finish_reason == "tool_calls"
    assert message.content is None
    [call] = message.tool_calls
    assert call.id.startswith("call_")
    names = ["get_weather"] if choice == "named" else ["get_weather", "get_time"]
    assert call.function.name in names
    if call.function.name == "get_weather":
        valid(PARAMETERS, call.function.arguments)


def test_a_streamed_call_joins_to_the_buffered_one(client):
    options = {"tools": [WEATHER], "tool_choice": "required", "temperature": 0}
    chat(client, **options)
    buffered = chat(client, **options).choices[0].message.tool_calls
    chunks = list(chat(client, stream=True, **options))
    calls = {}
    for chunk in chunks:
        for choice in chunk.choices:
            for delta in choice.delta.tool_calls or []:
                if delta.id:
                    calls[delta.index] = [delta.function.name, ""]
                calls[delta.index][1] += delta.function.arguments or ""
    assert [calls[index] for index in sorted(calls)] == [
        [call.function.name, call.function.arguments] for call in buffered
    ]
    reasons = [choice.finish_reason for chunk in chunks for choice in chunk.choices]
    assert [reason for reason in reasons if reason] == ["tool_calls"]
    assert text_of(chunks) == ""


def test_a_result_is_read_and_the_turn_before_it_is_reused(client):
    options = {"tools": [WEATHER], "temperature": 0}
    first = chat(client, tool_choice="required", **options)
    message = first.choices[0].message
    result = {
        "role": "tool",
        "tool_call_id": message.tool_calls[0].id,
        "content": "Sunny, 21 degrees.",
    }
    second = chat(client, [*QUESTION, message.model_dump(exclude_none=True), result], **options)
    assert second.choices[0].finish_reason in ("stop", "length", "tool_calls")
    reused = second.usage.prompt_tokens_details.cached_tokens
    assert reused > first.usage.prompt_tokens, "the call's own tokens are reused too"


def test_tools_that_are_not_to_be_called_leave_the_prompt_as_it_was(client):
    plain = chat(client, max_tokens=1)
    unused = chat(client, tools=[WEATHER], tool_choice="none", max_tokens=1)
    assert unused.usage.prompt_tokens == plain.usage.prompt_tokens
    assert "tools" in unused.model_extra["refrain"]["ignored"]


def test_anthropics_client_gets_a_tool_use_block(claude):
    tool = {"name": "get_weather", "description": "Weather.", "input_schema": PARAMETERS}
    options = {"tools": [tool], "tool_choice": {"type": "tool", "name": "get_weather"}}
    options |= {"model": MODEL, "messages": QUESTION, "max_tokens": 96}
    options |= {"extra_body": {"temperature": 0}}
    message = claude.messages.create(**options)
    assert message.stop_reason == "tool_use"
    [block] = message.content
    assert (block.type, block.name) == ("tool_use", "get_weather")
    Draft202012Validator(PARAMETERS).validate(block.input)
    with claude.messages.stream(**options) as stream:
        streamed = stream.get_final_message()
    assert streamed.stop_reason == "tool_use"
    assert streamed.content[0].input == block.input
    turns = [
        *QUESTION,
        {
            "role": "assistant",
            "content": [block.model_dump(include={"type", "id", "name", "input"})],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": block.id, "content": "Sunny."}],
        },
    ]
    options = {**options, "messages": turns, "tool_choice": {"type": "auto"}}
    second = claude.messages.create(**options)
    assert second.usage.cache_read_input_tokens > message.usage.output_tokens


@pytest.mark.parametrize("seed", range(20))
def test_structured_output_parses_and_validates(client, seed):
    answer = chat(
        client,
        [{"role": "user", "content": "Describe a person as JSON."}],
        response_format={
            "type": "json_schema",
            "json_schema": {"name": "person", "schema": PERSON, "strict": True},
        },
        seed=seed,
        n=10,
        max_tokens=200,
    )
    assert len(answer.choices) == 10
    for choice in answer.choices:
        assert choice.finish_reason == "stop"
        valid(PERSON, choice.message.content)


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_is_a_call_or_has_the_form(client, stream):
    """A person begins as a call does, `{"name": "`; a word does not, and seldom comes to mind."""
    known = {tool["function"]["name"]: tool["function"] for tool in (WEATHER, CLOCK)}
    options = {"tools": [WEATHER, CLOCK], "max_tokens": 200, "n": 10, "seed": 11}
    options |= {"parallel_tool_calls": False}
    found = {"stop": 0, "tool_calls": 0}
    for schema in (PERSON, {"const": "xylophone"}):
        form = {"type": "json_schema", "json_schema": {"name": "form", "schema": schema}}
        options["response_format"] = form
        if stream:
            asked = {"model": MODEL, "messages": QUESTION, **options}
            with client.chat.completions.stream(**asked) as chunks:
                answer = chunks.get_final_completion()
        else:
            answer = chat(client, **options)
        for choice in answer.choices:
            found[choice.finish_reason] += 1
            if choice.finish_reason == "stop":
                assert not choice.message.tool_calls
                valid(schema, choice.message.content)
                continue
            assert not choice.message.content
            [call] = choice.message.tool_calls
            valid(known[call.function.name]["parameters"], call.function.arguments)
    assert all(found.values()), found


def test_a_call_that_must_be_made_has_no_form(client):
    answer = chat(
        client,
        tools=[WEATHER],
        tool_choice="required",
        response_format={"type": "json_object"},
        temperature=0,
    )
    assert answer.choices[0].finish_reason == "tool_calls"
    assert answer.model_extra["refrain"]["ignored"] == ["response_format"]


def test_the_other_ways_to_ask(client):
    answer = chat(client, response_format={"type": "json_object"}, max_tokens=300, seed=3)
    if answer.choices[0].finish_reason == "stop":
        assert isinstance(json.loads(answer.choices[0].message.content), dict)
    regex = chat(client, extra_body={"structured_outputs": {"regex": "[ab]{3}-[0-9]{2}"}})
    assert re.fullmatch("[ab]{3}-[0-9]{2}", regex.choices[0].message.content)
    choice = chat(client, extra_body={"guided_choice": ["yes", "no"]})
    assert choice.choices[0].message.content in ("yes", "no")
    text = client.completions.create(
        model=MODEL, prompt="The answer is", extra_body={"guided_choice": ["yes", "no"]}
    )
    assert text.choices[0].text in ("yes", "no")


def test_bits_beside_a_constrained_answer_do_not_change(client):
    question = [{"role": "user", "content": "Tell me of the sea."}]
    options = {"temperature": 0.8, "seed": 5, "logprobs": True, "max_tokens": 24}
    alone = chat(client, question, **options)
    streams = [
        chat(client, response_format={"type": "json_object"}, stream=True, max_tokens=64, seed=s)
        for s in range(3)
    ]
    beside = chat(client, question, **options)
    for stream in streams:
        list(stream)
    assert beside.choices[0].logprobs == alone.choices[0].logprobs
    assert beside.choices[0].message.content == alone.choices[0].message.content


@pytest.mark.parametrize(
    ("options", "field", "word"),
    [
        ({"tool_choice": "required"}, "tool_choice", "tools"),
        (
            {"tools": [WEATHER], "tool_choice": {"type": "function", "function": {"name": "x"}}},
            "tool_choice",
            "x",
        ),
        ({"response_format": {"type": "xml"}}, "response_format", "type"),
        (
            {
                "tools": [{"type": "function", "function": {"name": "f", "parameters": BAD}}],
                "response_format": {"type": "json_object"},
            },
            "tools",
            "cannot be held",
        ),
        ({"extra_body": {"guided_regex": "("}}, "guided_json", "cannot be held"),
        ({"reasoning_effort": "enormous"}, "reasoning_effort", "enormous"),
    ],
)
def test_what_cannot_be_done_is_a_clear_400(client, options, field, word):
    import openai

    with pytest.raises(openai.BadRequestError) as raised:
        chat(client, **options)
    assert raised.value.param == field
    assert word in raised.value.message
