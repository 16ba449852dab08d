"""What is reused, where it stops, and why: the verdict on every answer."""

import pytest

from harness import Server, verdict

SYSTEM = "You are a helpful assistant. Today is Monday. Answer in one short sentence."
QUESTION = "What is the capital of France?"


@pytest.fixture(scope="module")
def fresh(default_model):
    """A server that has seen nothing yet."""
    with Server() as running:
        yield running


def messages(system: str, *turns: str) -> list[dict]:
    roles = ["user", "assistant"]
    said = [{"role": roles[i % 2], "content": turn} for i, turn in enumerate(turns)]
    return [{"role": "system", "content": system}, *said]


def ask(client, conversation, **options):
    options = {"temperature": 0, "max_tokens": 24} | options
    return client.chat.completions.create(model="smollm2", messages=conversation, **options)


def test_a_conversation_goes_through_the_reasons(fresh):
    """One story, told in order: each request builds on what the ones before have left."""
    client = fresh.client()
    first = ask(client, messages(SYSTEM, QUESTION))
    seen = verdict(first)
    assert seen["stop"]["reason"] == "first_request"
    assert seen["reused_tokens"] == 0
    assert seen["compared_with"] is None
    assert first.usage.prompt_tokens_details.cached_tokens == 0

    again = ask(client, messages(SYSTEM, QUESTION))
    repeated = verdict(again)
    assert repeated["stop"]["reason"] == "end_of_prompt"
    assert repeated["reused_tokens"] == repeated["prompt_tokens"] - 1
    assert repeated["computed_tokens"] == 1
    assert repeated["compared_with"] == first.id
    assert again.usage.prompt_tokens_details.cached_tokens == repeated["reused_tokens"]
    assert again.choices[0].message.content == first.choices[0].message.content

    answer = first.choices[0].message.content
    appended = verdict(ask(client, messages(SYSTEM, QUESTION, answer, "And of Italy?")))
    assert appended["stop"]["reason"] == "end_of_cached"
    assert appended["reused_tokens"] >= seen["prompt_tokens"]
    assert appended["reused_from"] == {"ram": appended["reused_tokens"], "disk": 0}

    changed = verdict(ask(client, messages(SYSTEM.replace("Monday", "Friday"), QUESTION)))
    stop = changed["stop"]
    assert stop["reason"] == "different_token"
    assert stop["cached"]["text"].strip() == "Monday"
    assert stop["request"]["text"].strip() == "Friday"
    assert (stop["message"], stop["role"]) == (0, "system")
    start, end = stop["chars"]
    assert SYSTEM[start:end].strip() == "Monday"
    assert stop["at"] == changed["reused_tokens"]
    assert stop["identical_after"] == changed["prompt_tokens"] - stop["at"] - 1


def test_counts_agree_with_each_other(fresh):
    answer = ask(fresh.client(), messages("Be brief.", "Name a colour."))
    seen = verdict(answer)
    assert seen["prompt_tokens"] == seen["reused_tokens"] + seen["computed_tokens"]
    assert seen["prompt_tokens"] == answer.usage.prompt_tokens
    counts = answer.model_extra["refrain"]["tokens"]
    assert counts["input"] + counts["cached_input"] == answer.usage.prompt_tokens
    assert counts["output"] == answer.usage.completion_tokens
    assert answer.model_extra["refrain"]["price"] is None, "no prices were set"
    timings = answer.model_extra["refrain"]["timings"]
    assert timings["ttft_ms"] >= timings["prefill_ms"] > 0


def test_a_stream_carries_the_verdict_in_its_last_chunk(fresh):
    chunks = list(
        ask(fresh.client(), messages("Be brief.", "Name a fish."), stream=True, max_tokens=4)
    )
    assert verdict(chunks[-1])["prompt_tokens"] > 0
    assert all("refrain" not in (chunk.model_extra or {}) for chunk in chunks[:-1])


def test_a_long_prompt_is_computed_once(fresh):
    """A document of some 3,800 tokens, another question at its end, then a changed first line."""
    client = fresh.client()
    lines = [f"Line {number}: the lamp on the pier was lit again." for number in range(230)]
    document = "\n".join(lines)
    first = ask(client, messages(document, "What was lit?"), max_tokens=1)
    other = ask(client, messages(document, "Where is the lamp?"), max_tokens=1)
    seen, reused = verdict(first), verdict(other)
    assert seen["prompt_tokens"] > 3000
    assert reused["stop"]["reason"] == "different_token"
    assert reused["stop"]["role"] == "user"
    assert reused["computed_tokens"] < 20
    slow, fast = (answer.model_extra["refrain"]["timings"]["ttft_ms"] for answer in (first, other))
    assert fast * 10 < slow, f"{fast} ms after {slow} ms"

    moved = document.replace("Line 0: the lamp", "Line 0: the light")
    changed = verdict(ask(client, messages(moved, "What was lit?"), max_tokens=1))
    stop = changed["stop"]
    assert stop["reason"] == "different_token"
    assert (stop["message"], stop["role"]) == (0, "system")
    assert stop["cached"]["text"] == " lamp"
    assert stop["request"]["text"] == " light"
    # It is compared with the last request, whose question was another one.
    after = changed["prompt_tokens"] - stop["at"] - 1
    assert after - 10 < stop["identical_after"] < after


def test_the_clock_in_a_system_prompt(gpt2):
    """The article's pair, on GPT-2's vocabulary: 20 of 24 tokens, then 486 against 2999."""
    prompt = "You are a helpful assistant.\nCurrent time: 2026-01-05 10:00:{}\nTools:"
    with Server(str(gpt2)) as server:
        client = server.client()

        def complete(text):
            return client.completions.create(model="gpt2", prompt=text, max_tokens=1)

        complete(prompt.format("01"))
        seen = verdict(complete(prompt.format("02")))
    assert (seen["prompt_tokens"], seen["reused_tokens"], seen["computed_tokens"]) == (24, 20, 4)
    stop = seen["stop"]
    assert (stop["reason"], stop["at"]) == ("different_token", 20)
    assert stop["cached"] == {"id": 486, "text": "01"}
    assert stop["request"] == {"id": 2999, "text": "02"}
    assert stop["identical_after"] == 3
