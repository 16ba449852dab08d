"""Anthropic's Messages API through its official client, streamed and not."""

import anthropic
import pytest

MODEL = "smollm2"
QUESTION = [{"role": "user", "content": "What is 2+2?"}]
SYSTEM = "You are the guide of a museum of clocks. " + " ".join(
    f"Room {room} shows clocks of the year {1500 + 7 * room}." for room in range(40)
)
EPHEMERAL = {"type": "ephemeral"}


@pytest.fixture(scope="module")
def claude(server):
    """The official client; it must not hide a failure by trying again."""
    return anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=60)


def ask(claude, messages=QUESTION, *, temperature=0, seed=None, **options):
    options.setdefault("max_tokens", 32)
    # The client of today has no parameter for these, older ones have.
    options["extra_body"] = {"temperature": temperature, "seed": seed}
    return claude.messages.create(model=MODEL, messages=messages, **options)


def events(claude, messages=QUESTION, **options):
    return list(ask(claude, messages, stream=True, **options))


def text_of(message) -> str:
    return "".join(block.text for block in message.content)


def prompt_tokens(usage) -> int:
    return usage.input_tokens + usage.cache_creation_input_tokens + usage.cache_read_input_tokens


def test_a_question_gets_an_answer_that_ends_its_turn(claude):
    message = ask(claude)
    assert "4" in text_of(message)
    assert (message.type, message.role, message.stop_reason) == ("message", "assistant", "end_turn")
    assert message.id.startswith("msg_")
    assert message.stop_sequence is None
    assert message.usage.output_tokens > 0


def test_the_same_question_in_both_dialects_gets_the_same_answer(claude, client):
    messages = [{"role": "system", "content": SYSTEM}, *QUESTION]
    theirs = client.chat.completions.create(
        model=MODEL, messages=messages, temperature=0, max_tokens=32
    )
    ours = ask(claude, system=SYSTEM)
    assert text_of(ours) == theirs.choices[0].message.content
    assert prompt_tokens(ours.usage) == theirs.usage.prompt_tokens
    assert ours.usage.cache_read_input_tokens == prompt_tokens(ours.usage) - 1


@pytest.mark.parametrize("seed", [1, 7])
def test_a_stream_has_its_events_in_order_and_joins_to_the_buffered_message(claude, seed):
    options = {"temperature": 0.9, "max_tokens": 48, "seed": seed}
    question = [{"role": "user", "content": "Write a smiley 😀 and 你好."}]
    ask(claude, question, **options)
    buffered = ask(claude, question, **options)
    streamed = events(claude, question, **options)
    kinds = [event.type for event in streamed]
    deltas = kinds.count("content_block_delta")
    assert kinds == [
        "message_start",
        "content_block_start",
        *["content_block_delta"] * deltas,
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    text = "".join(event.delta.text for event in streamed if event.type == "content_block_delta")
    assert text == text_of(buffered)
    assert "\ufffd" not in text
    last = next(event for event in streamed if event.type == "message_delta")
    assert last.delta.stop_reason == buffered.stop_reason
    assert last.usage.output_tokens == buffered.usage.output_tokens
    start = streamed[0].message
    assert start.usage.cache_read_input_tokens == buffered.usage.cache_read_input_tokens
    assert start.content == []
    assert start.stop_reason is None


def test_the_clients_own_stream_helper_adds_it_up(claude):
    with claude.messages.stream(
        model=MODEL, messages=QUESTION, max_tokens=32, extra_body={"temperature": 0}
    ) as stream:
        text = "".join(stream.text_stream)
        message = stream.get_final_message()
    assert text == text_of(message) == text_of(ask(claude))
    assert message.stop_reason == "end_turn"


def test_a_stop_sequence_is_named_and_does_not_leak(claude):
    whole = text_of(ask(claude))
    stop = whole[3:6]
    message = ask(claude, stop_sequences=["never\x01", stop])
    assert message.stop_reason == "stop_sequence"
    assert message.stop_sequence == stop
    assert text_of(message) == whole[: whole.index(stop)]
    last = next(
        event
        for event in events(claude, stop_sequences=["never\x01", stop])
        if event.type == "message_delta"
    )
    assert (last.delta.stop_reason, last.delta.stop_sequence) == ("stop_sequence", stop)


def test_the_longest_answer_is_a_reason_to_stop(claude):
    assert ask(claude, max_tokens=2).stop_reason == "max_tokens"
    nothing = ask(claude, max_tokens=0)
    assert (nothing.content, nothing.stop_reason) == ([], "max_tokens")


def test_a_breakpoint_counts_what_was_written_and_the_next_turn_reads_it(claude):
    system = [{"type": "text", "text": "Breakpoints. " + SYSTEM, "cache_control": EPHEMERAL}]
    first = ask(claude, [{"role": "user", "content": "Hello."}], system=system)
    written = first.usage.cache_creation_input_tokens
    assert written > 400
    assert first.usage.cache_creation.ephemeral_5m_input_tokens == written
    assert first.usage.input_tokens < 100
    second = ask(claude, [{"role": "user", "content": "How many rooms?"}], system=system)
    assert second.usage.cache_read_input_tokens >= written
    assert second.usage.cache_creation_input_tokens == 0
    long = [{**system[0], "cache_control": {"type": "ephemeral", "ttl": "1h"}}]
    long[0]["text"] = "Another. " + SYSTEM
    third = ask(claude, system=long)
    assert third.usage.cache_creation.ephemeral_1h_input_tokens > 400
    assert third.usage.cache_creation.ephemeral_5m_input_tokens == 0


def test_without_a_breakpoint_all_that_is_computed_is_input(claude):
    message = ask(claude, [{"role": "user", "content": "A line without a mark."}])
    assert message.usage.cache_creation_input_tokens == 0
    assert message.usage.input_tokens > 0


def test_tokens_are_counted_as_the_message_counts_them(claude):
    system = [{"type": "text", "text": "Be brief."}]
    counted = claude.messages.count_tokens(model=MODEL, messages=QUESTION, system=system)
    assert counted.input_tokens == prompt_tokens(ask(claude, system=system).usage)


def test_results_of_tools_of_earlier_turns_are_read(claude):
    messages = [
        {"role": "user", "content": "What is the weather in Paris?"},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "I look."},
                {
                    "type": "tool_use",
                    "id": "toolu_1",
                    "name": "weather",
                    "input": {"city": "Paris"},
                },
            ],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "Sun."}],
        },
    ]
    assert ask(claude, messages).usage.output_tokens > 0


@pytest.mark.parametrize(
    ("options", "status", "kind", "word"),
    [
        ({"messages": []}, 400, "invalid_request_error", "messages"),
        ({"messages": [{"role": "alien", "content": "x"}]}, 400, "invalid_request_error", "role"),
        ({"max_tokens": -1}, 400, "invalid_request_error", "max_tokens"),
        ({"temperature": 3}, 400, "invalid_request_error", "temperature"),
        ({"stop_sequences": [""]}, 400, "invalid_request_error", "stop_sequences"),
        (
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [
                            {
                                "type": "image",
                                "source": {
                                    "type": "base64",
                                    "media_type": "image/png",
                                    "data": "iVBORw0KGgo=",
                                },
                            }
                        ],
                    }
                ]
            },
            400,
            "invalid_request_error",
            "image",
        ),
        (
            {"messages": [*QUESTION, {"role": "assistant", "content": "It is"}]},
            400,
            "invalid_request_error",
            "assistant",
        ),
        (
            {"system": [{"type": "text", "text": "x", "cache_control": {"type": "forever"}}]},
            400,
            "invalid_request_error",
            "cache_control",
        ),
        (
            {"messages": [{"role": "user", "content": "word " * 20000}]},
            400,
            "invalid_request_error",
            "context",
        ),
    ],
)
def test_errors_have_their_clients_shape_and_name_the_field(claude, options, status, kind, word):
    with pytest.raises(anthropic.APIStatusError) as raised:
        ask(claude, **options)
    assert raised.value.status_code == status
    body = raised.value.body
    assert (body["type"], body["error"]["type"]) == ("error", kind)
    assert word in body["error"]["message"]


def test_what_is_missing_is_named(server):
    with server.http() as http:
        answer = http.post("/v1/messages", json={"messages": QUESTION})
        assert answer.status_code == 400
        assert "max_tokens" in answer.json()["error"]["message"]
        assert http.get("/v1/messages").status_code == 405
