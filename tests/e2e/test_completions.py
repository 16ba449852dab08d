"""Plain completions: text, token ids, arrays of both, echo."""

import pytest

from harness import verdict

TEXT = "The capital of France is"


def complete(client, prompt, **options):
    options = {"temperature": 0, "max_tokens": 6} | options
    return client.completions.create(model="smollm2", prompt=prompt, **options)


@pytest.fixture(scope="module")
def ids(server):
    with server.http() as http:
        return http.post("/tokenize", json={"prompt": TEXT}).json()["tokens"]


def test_text_and_its_token_ids_complete_alike(client, ids):
    by_text, by_ids = complete(client, TEXT), complete(client, ids)
    assert "Paris" in by_text.choices[0].text
    assert by_text.choices[0].text == by_ids.choices[0].text
    assert by_text.usage.prompt_tokens == by_ids.usage.prompt_tokens == len(ids)


def test_arrays_of_prompts_are_answered_in_order(client, ids):
    other = "One, two, three,"
    single = [complete(client, prompt).choices[0].text for prompt in (TEXT, other)]
    both = complete(client, [TEXT, other])
    assert [choice.index for choice in both.choices] == [0, 1]
    assert [choice.text for choice in both.choices] == single
    arrays = complete(client, [ids, ids])
    assert [choice.text for choice in arrays.choices] == [single[0]] * 2
    assert arrays.usage.prompt_tokens == 2 * len(ids)


def test_a_streams_fragments_join_to_the_buffered_text(client):
    options = {"seed": 3, "temperature": 1.0, "max_tokens": 32}
    complete(client, TEXT, **options)
    buffered = complete(client, TEXT, **options)
    stream_options = {"include_usage": True}
    chunks = list(complete(client, TEXT, stream=True, stream_options=stream_options, **options))
    joined = "".join(choice.text for chunk in chunks for choice in chunk.choices)
    assert joined == buffered.choices[0].text
    assert chunks[-1].choices == []
    assert chunks[-1].usage == buffered.usage


def test_echo_puts_the_prompt_before_the_completion(client):
    plain = complete(client, TEXT).choices[0].text
    assert complete(client, TEXT, echo=True).choices[0].text == TEXT + plain


def test_echo_with_logprobs_scores_the_prompt_and_says_why_nothing_was_reused(client, ids):
    answer = complete(client, TEXT, echo=True, logprobs=3, max_tokens=2)
    scores = answer.choices[0].logprobs
    assert "".join(scores.tokens) == answer.choices[0].text
    assert len(scores.tokens) == len(ids) + 2
    assert scores.token_logprobs[0] is None, "nothing comes before the first token"
    assert all(score <= 0 for score in scores.token_logprobs[1:])
    assert scores.text_offset[0] == 0
    stop = verdict(answer)["stop"]
    assert stop["reason"] == "rows_requested"
    assert verdict(answer)["reused_tokens"] == 0


def test_the_prompts_own_scores_agree_with_those_of_completions(client, ids):
    """A token's logprob is the same bits as a prompt's row and as a generated token."""
    generated = complete(client, TEXT, logprobs=1, max_tokens=3).choices[0]
    whole = TEXT + generated.text
    echoed = complete(client, whole, echo=True, logprobs=1, max_tokens=1).choices[0]
    assert echoed.logprobs.tokens[: len(ids) + 3][-3:] == generated.logprobs.tokens
    assert echoed.logprobs.token_logprobs[len(ids) : len(ids) + 3] == (
        generated.logprobs.token_logprobs
    )


def test_a_completion_says_length_or_stop(client):
    answer = complete(client, TEXT, max_tokens=2)
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 2
    answer = complete(client, "One, two, three,", stop="five", max_tokens=20)
    assert answer.choices[0].finish_reason == "stop"
    assert "five" not in answer.choices[0].text
