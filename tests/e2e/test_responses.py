"""The Responses API through the official client, which checks every answer and event strictly."""

import json

import openai
import pytest
from jsonschema import Draft202012Validator

from harness import Server, command, verdict

MODEL = "smollm2"
QUESTION = "Name three rivers of Europe."
SYSTEM = "You answer in one short sentence, and never with a list. " * 4
PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather of a city.",
    "parameters": PARAMETERS,
    "strict": True,
}
DELTAS = (
    "response.output_text.delta",
    "response.reasoning_text.delta",
    "response.function_call_arguments.delta",
)


@pytest.fixture(scope="module")
def client(server) -> openai.OpenAI:
    return server.client(strict=True)


def respond(client, given=QUESTION, **options):
    options.setdefault("max_output_tokens", 32)
    options.setdefault("temperature", 0)
    return client.responses.create(model=MODEL, input=given, **options)


def streamed(client, given=QUESTION, **options) -> list:
    return list(respond(client, given, stream=True, **options))


def reused(response) -> int:
    return response.usage.input_tokens_details.cached_tokens


def items(response) -> list[dict]:
    """The items of an answer without what differs from one answer to the next."""
    listed = [item.model_dump() for item in response.output]
    for item in listed:
        item.pop("id")
        item.pop("call_id", None)
    return listed


def test_a_question_gets_a_response(client):
    response = respond(client, metadata={"a": "b"}, user="u", max_output_tokens=200)
    assert response.id.startswith("resp_") and response.object == "response"
    assert response.status == "completed" and response.incomplete_details is None
    [message] = response.output
    assert message.role == "assistant" and message.status == "completed"
    assert response.output_text == message.content[0].text != ""
    usage = response.usage
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens
    assert usage.output_tokens_details.reasoning_tokens == 0
    assert response.metadata == {"a": "b"} and response.user == "u"
    assert verdict(response)["prompt_tokens"] == usage.input_tokens
    assert "user" in response.model_extra["refrain"]["ignored"]


def test_tokens_of_an_input_are_counted(client):
    counted = client.responses.input_tokens.count(model=MODEL, input=QUESTION, tools=[WEATHER])
    response = respond(client, tools=[WEATHER], max_output_tokens=1)
    assert counted.input_tokens == response.usage.input_tokens
    more = {"input": "And of Asia?", "previous_response_id": response.id, "tools": [WEATHER]}
    counted = client.responses.input_tokens.count(model=MODEL, **more)
    assert counted.input_tokens == respond(client, more.pop("input"), **more).usage.input_tokens


def test_it_says_what_chat_completions_say(client):
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": QUESTION}]
    chat = client.chat.completions.create(
        model=MODEL, messages=messages, temperature=0, max_tokens=32
    )
    response = respond(client, instructions=SYSTEM)
    assert response.output_text == chat.choices[0].message.content
    assert response.usage.input_tokens == chat.usage.prompt_tokens
    parts = [{"role": "user", "content": [{"type": "input_text", "text": QUESTION}]}]
    assert respond(client, parts, instructions=SYSTEM).output_text == response.output_text
    system = [{"role": "developer", "content": SYSTEM}, *parts]
    assert respond(client, system).output_text == response.output_text


def test_a_cut_answer_is_incomplete(client):
    response = respond(client, max_output_tokens=3)
    assert response.status == "incomplete"
    assert response.incomplete_details.reason == "max_output_tokens"
    assert response.output[0].status == "incomplete"
    assert response.usage.output_tokens == 3
    assert streamed(client, max_output_tokens=3)[-1].type == "response.incomplete"


@pytest.mark.parametrize("seed", [1, 7])
@pytest.mark.parametrize("prompt", [QUESTION, "Write 你好 and an emoji 😀 a few times."])
def test_a_stream_has_its_events_in_order_and_joins_to_the_buffered_response(client, prompt, seed):
    options = {"temperature": 0.9, "extra_body": {"seed": seed}, "max_output_tokens": 48}
    respond(client, prompt, **options)  # both others then find the same in the prompt cache
    buffered = respond(client, prompt, **options)
    events = streamed(client, prompt, **options)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type for event in events]
    assert [kind for kind in kinds if kind not in DELTAS] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        f"response.{buffered.status}",
    ]
    last = events[-1].response
    assert events[0].response.status == "in_progress" and events[0].response.output == []
    assert {event.response.id for event in (events[0], events[1], events[-1])} == {last.id}
    text = "".join(event.delta for event in events if event.type == DELTAS[0])
    assert text == buffered.output_text == last.output_text
    assert items(last) == items(buffered) and last.usage == buffered.usage


def test_the_clients_own_reader_of_streams_follows(client):
    with client.responses.stream(
        model=MODEL, input=QUESTION, temperature=0, max_output_tokens=200
    ) as stream:
        text = "".join(event.delta for event in stream if event.type == DELTAS[0])
        assert stream.get_final_response().output_text == text


@pytest.mark.parametrize("limit", [300, 5])
def test_going_on_reuses_all_that_was_computed(client, limit):
    question = f"Tell me something about the number {limit}, in two sentences."
    first = respond(client, question, instructions=SYSTEM, max_output_tokens=limit)
    length, answered = first.usage.input_tokens, first.usage.output_tokens
    # The token that ended the answer was drawn and is no part of it; where it was cut, the last one
    # was not computed.
    held = length + answered - 1
    more = {"instructions": SYSTEM, "previous_response_id": first.id}
    second = respond(client, "And what about its double?", **more)
    assert reused(second) == held
    stop = verdict(second)["stop"]
    assert (stop["reason"], stop["at"]) == ("end_of_cached", held)
    assert second.previous_response_id == first.id
    # A whole chain, streamed, of which each turn finds the one before.
    third = streamed(client, "Go on.", **more | {"previous_response_id": second.id})[-1].response
    expected = second.usage.input_tokens + second.usage.output_tokens - 1
    assert reused(third) == expected
    # Two may go on from the same.
    assert reused(respond(client, "And its half?", **more)) >= held


def test_going_on_is_what_the_conversation_is(client):
    first = respond(client, instructions=SYSTEM, max_output_tokens=200)
    assert first.status == "completed"
    question = {"role": "user", "content": "Which one is the longest?"}
    after = respond(client, [question], instructions=SYSTEM, previous_response_id=first.id)
    said = [{"role": "user", "content": QUESTION}, *first.output, question]
    whole = respond(client, said, instructions=SYSTEM)
    assert after.output_text == whole.output_text
    # Instructions are not carried over: others are another conversation from its first token on.
    other = respond(client, [question], instructions="Be rude.", previous_response_id=first.id)
    alone = respond(client, said, instructions="Be rude.")
    assert other.usage.input_tokens == alone.usage.input_tokens
    assert other.output_text == alone.output_text
    assert reused(other) < first.usage.input_tokens


# What the template of the model writes where there is no system prompt.
WITHOUT = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"


@pytest.mark.parametrize("before", [WITHOUT, openai.omit])
@pytest.mark.parametrize("after", [WITHOUT, openai.omit])
def test_instructions_that_say_what_the_template_does_lose_no_message(client, before, after):
    first = respond(client, instructions=before, max_output_tokens=8)
    more = [{"role": "user", "content": text} for text in ("One, two, three.", "And four?")]

    def count(given: list) -> int:
        options = {"previous_response_id": first.id, "instructions": after}
        return client.responses.input_tokens.count(model=MODEL, input=given, **options).input_tokens

    whole = [{"role": "user", "content": QUESTION}, *first.output, *more]
    counted = client.responses.input_tokens.count(model=MODEL, input=whole, instructions=after)
    # The reply was cut: it may have other tokens where it is tokenized again.
    assert abs(count(more) - counted.input_tokens) <= 1
    assert count(more) > count(more[1:]) + 4


def test_a_response_is_kept_until_it_is_deleted(client):
    given = [{"role": "user", "content": "One."}, {"role": "assistant", "content": "Two."}]
    response = respond(client, [*given, {"role": "user", "content": "Three."}])
    assert client.responses.retrieve(response.id).model_dump() == response.model_dump()
    listed = client.responses.input_items.list(response.id, order="asc", limit=2)
    assert [item.content[0].text for item in listed.data] == ["One.", "Two."]
    assert listed.has_more and listed.last_id == listed.data[-1].id
    everything = list(client.responses.input_items.list(response.id, limit=1))
    assert [item.content[0].text for item in everything] == ["Three.", "Two.", "One."]
    with pytest.raises(openai.BadRequestError, match="in the background"):
        client.responses.cancel(response.id)
    client.responses.delete(response.id)
    for call in (client.responses.retrieve, client.responses.delete, client.responses.cancel):
        with pytest.raises(openai.NotFoundError):
            call(response.id)
    with pytest.raises(openai.BadRequestError) as refused:
        respond(client, previous_response_id=response.id)
    assert refused.value.code == "previous_response_not_found"
    assert refused.value.param == "previous_response_id"


def test_one_that_is_not_to_be_kept_is_not(client):
    response = respond(client, store=False)
    assert response.model_extra["store"] is False
    for last in (response, streamed(client, store=False)[-1].response):
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(last.id)
        with pytest.raises(openai.BadRequestError):
            respond(client, previous_response_id=last.id)


def test_a_salts_responses_are_found_with_the_salt(client):
    salt = {"cache_salt": "s"}
    response = respond(client, extra_body=salt)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(response.id)
    assert client.responses.retrieve(response.id, extra_query=salt).id == response.id
    with pytest.raises(openai.BadRequestError):
        respond(client, previous_response_id=response.id)
    after = respond(client, previous_response_id=response.id, extra_body=salt)
    assert reused(after) > response.usage.input_tokens


def test_another_keys_response_is_not_found(default_model, tmp_path):
    keys = {name: json.loads(command("key", name, "--json").stdout) for name in ("alice", "bob")}
    path = tmp_path / "keys.txt"
    path.write_text("".join(key["line"] + "\n" for key in keys.values()))
    with Server(MODEL, "--api-keys", str(path)) as server:
        alice, bob = (server.client(keys[name]["key"], strict=True) for name in keys)
        response = respond(alice)
        for call in (bob.responses.retrieve, bob.responses.delete, bob.responses.cancel):
            with pytest.raises(openai.NotFoundError):
                call(response.id)
        with pytest.raises(openai.NotFoundError):
            bob.responses.input_items.list(response.id)
        with pytest.raises(openai.BadRequestError) as refused:
            respond(bob, previous_response_id=response.id)
        assert refused.value.code == "previous_response_not_found"
        held = response.usage.input_tokens + response.usage.output_tokens - 1
        assert reused(respond(alice, previous_response_id=response.id)) == held
        with pytest.raises(openai.AuthenticationError):
            server.client("wrong").responses.retrieve(response.id)


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "get_weather"}])
def test_a_function_is_called_and_its_output_gone_on_from(client, choice):
    question = f"What is the weather in {'Paris' if choice == 'required' else 'Rome'} today?"
    options = {"tools": [WEATHER], "tool_choice": choice, "parallel_tool_calls": False}
    options["max_output_tokens"] = 64
    first = respond(client, question, **options)
    [call] = first.output
    assert (call.type, call.name, call.status) == ("function_call", "get_weather", "completed")
    Draft202012Validator(PARAMETERS).validate(json.loads(call.arguments))
    assert first.tool_choice == choice or first.tool_choice.name == "get_weather"
    events = streamed(client, question, **options)
    assert [event.type for event in events if event.type not in DELTAS] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.completed",
    ]
    fragments = "".join(event.delta for event in events if event.type in DELTAS)
    assert fragments == call.arguments
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "Rain, 9 °C."}
    after = respond(client, [output], previous_response_id=first.id, tools=[WEATHER])
    held = first.usage.input_tokens + first.usage.output_tokens - 1
    assert reused(after) == held
    said = [{"role": "user", "content": question}, call, output]
    whole = respond(client, said, tools=[WEATHER])
    assert whole.output_text == after.output_text


def test_a_text_has_the_form_that_is_asked_for(client):
    text = {
        "format": {"type": "json_schema", "name": "place", "schema": PARAMETERS, "strict": True}
    }
    response = respond(client, "Name a city.", text=text, max_output_tokens=64)
    Draft202012Validator(PARAMETERS).validate(json.loads(response.output_text))
    assert response.text.format.name == "place"
    text = {"format": {"type": "json_object"}}
    response = respond(client, "Say something in JSON.", text=text, max_output_tokens=200)
    assert response.status == "incomplete" or isinstance(json.loads(response.output_text), dict)


def test_logprobs_are_those_of_the_text(client):
    options = {"include": ["message.output_text.logprobs"], "top_logprobs": 3}
    response = respond(client, max_output_tokens=8, **options)
    rows = response.output[0].content[0].logprobs
    assert b"".join(bytes(row.bytes) for row in rows).decode() == response.output_text
    assert all(len(row.top_logprobs) == 3 for row in rows)
    events = streamed(client, max_output_tokens=8, **options)
    said = [row.token for event in events if event.type in DELTAS for row in event.logprobs]
    assert said == [row.token for row in rows]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "input"),
        ({"input": []}, "input"),
        ({"input": 5}, "input"),
        ({"input": [{"role": "critic", "content": "Hi"}]}, "input[0].role"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
            "input[0].content[0]",
        ),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0]"),
        ({"input": "Hi", "tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"input": "Hi", "background": True}, "background"),
        ({"input": "Hi", "conversation": "conv_1"}, "conversation"),
        ({"input": "Hi", "max_output_tokens": -1}, "max_output_tokens"),
        ({"input": "Hi", "temperature": 3}, "temperature"),
        ({"input": "Hi", "text": {"format": {"type": "xml"}}}, "text.format"),
        ({"input": "Hi", "previous_response_id": "resp_none"}, "previous_response_id"),
        ({"input": "Hi " * 20_000}, "input"),
        ({"input": [{"type": "reasoning"}] * 16_385}, "input"),
    ],
)
def test_what_is_wrong_is_named(server, body, field):
    with server.http() as http:
        for stream in (False, True):
            answer = http.post("/v1/responses", json=body | {"stream": stream})
            assert answer.status_code == 400, answer.text
            error = answer.json()["error"]
            assert error["param"] == field and error["type"] == "invalid_request_error"
            assert error["message"]


def test_unknown_paths_and_queries_are_refused(server):
    with server.http() as http:
        assert http.get("/v1/responses").status_code == 405
        assert http.get("/v1/responses/resp_none").status_code == 404
        assert http.get("/v1/responses/resp_none/other").status_code == 404
        made = http.post("/v1/responses", json={"input": "Hi", "max_output_tokens": 1}).json()
        path = f"/v1/responses/{made['id']}"
        for query in ("limit=0", "limit=x", "order=up", "after=none"):
            answer = http.get(f"{path}/input_items?{query}")
            assert answer.status_code == 400, query
            assert answer.json()["error"]["param"] == query.partition("=")[0]
        assert http.get(f"{path}?stream=true").status_code == 400


def test_progress_is_told_when_it_is_asked_for(server):
    body = {"input": "count the waves " * 300, "max_output_tokens": 1, "stream": True}
    body |= {"stream_options": {"include_progress": True}, "cache_prompt": False}
    with server.http() as http:
        lines = http.post("/v1/responses", json=body).text.splitlines()
    events = [json.loads(line.removeprefix("data: ")) for line in lines if line[:5] == "data:"]
    told = [
        event["response"]["refrain"]
        for event in events
        if event["type"][9:] == "in_progress" and "refrain" in event["response"]
    ]
    assert told and told[-1]["progress"]["tokens"] <= told[-1]["progress"]["prompt_tokens"]
    assert events[-1]["response"]["usage"]["input_tokens_details"]["cache_write_tokens"] == 0
