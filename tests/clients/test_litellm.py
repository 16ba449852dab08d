"""LiteLLM, which routes by the provider's name before the model's."""

import asyncio

import litellm
import pytest

MESSAGES = [{"role": "user", "content": "Name one river, and nothing else."}]
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}


@pytest.fixture(params=["openai", "anthropic"])
def options(request, server) -> dict:
    base = f"{server.url}/v1" if request.param == "openai" else server.url
    return {
        "model": f"{request.param}/smollm2",
        "api_base": base,
        "api_key": "none",
        "temperature": 0,
        "max_tokens": 16,
        "num_retries": 0,
    }


def test_an_answer_has_text_and_usage(options):
    answer = litellm.completion(messages=MESSAGES, **options)
    assert answer.choices[0].message.content
    usage = answer.usage
    assert 0 < usage.completion_tokens <= 16
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


def test_a_stream_says_what_the_whole_answer_does_and_keeps_its_usage(options):
    whole = litellm.completion(messages=MESSAGES, **options)
    chunks = list(
        litellm.completion(
            messages=MESSAGES, stream=True, stream_options={"include_usage": True}, **options
        )
    )
    joined = litellm.stream_chunk_builder(chunks, messages=MESSAGES)
    assert joined.choices[0].message.content == whole.choices[0].message.content
    assert joined.choices[0].finish_reason == whole.choices[0].finish_reason
    assert joined.usage.completion_tokens == whole.usage.completion_tokens
    assert joined.usage.prompt_tokens == whole.usage.prompt_tokens


def test_what_was_reused_is_in_the_usage(options):
    messages = [{"role": "user", "content": "A long text. " * 60 + options["model"]}]
    litellm.completion(messages=messages, **options)
    second = litellm.completion(messages=messages, **options)
    details = second.usage.prompt_tokens_details
    assert second.usage.prompt_tokens > 200
    assert second.usage.prompt_tokens - 20 < details.cached_tokens < second.usage.prompt_tokens


def test_a_required_call_fits_the_tool(options):
    answer = litellm.completion(
        messages=MESSAGES, tools=[TOOL], tool_choice="required", **options | {"max_tokens": 100}
    )
    call = answer.choices[0].message.tool_calls[0]
    assert call.function.name == "weather"
    assert call.function.arguments.replace(" ", "") in ('{"city":"Paris"}', '{"city":"Rome"}')


def test_asynchronous_requests_are_answered(options):
    async def several():
        return await asyncio.gather(
            *(litellm.acompletion(messages=MESSAGES, **options) for _ in range(3))
        )

    answers = asyncio.run(several())
    assert len({answer.choices[0].message.content for answer in answers}) == 1


def test_a_prompt_that_is_too_long_is_told_as_such(options):
    messages = [{"role": "user", "content": "word " * 5000}]
    with pytest.raises(litellm.ContextWindowExceededError):
        litellm.completion(messages=messages, **options)
