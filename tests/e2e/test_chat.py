"""Chat completions through the official client, streamed and not."""

import math
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness import text_of

MODEL = "smollm2"
QUESTION = [{"role": "user", "content": "What is 2+2?"}]
PROMPTS = [
    "Tell me one thing about the sea.",
    "Repeat this line: 😀 🎉 🇫🇷 👩‍🚀 naïve café",
    "请用中文说：你好，世界。今天天气很好。",
    "Write the Chinese words for sun, moon and star, and an emoji for each.",
]


def chat(client, messages, **options):
    return client.chat.completions.create(model=MODEL, messages=messages, **options)


def streamed(client, messages, **options) -> list:
    options.setdefault("stream_options", {"include_usage": True})
    return list(chat(client, messages, stream=True, **options))


def test_a_question_gets_an_answer_that_stops_by_itself(client):
    answer = chat(client, QUESTION, temperature=0)
    choice = answer.choices[0]
    assert "4" in choice.message.content
    assert choice.finish_reason == "stop"
    assert choice.message.role == "assistant"
    assert answer.object == "chat.completion"
    assert answer.id.startswith("chatcmpl-")


@pytest.mark.parametrize("prompt", PROMPTS)
@pytest.mark.parametrize("seed", [1, 7])
def test_a_streams_fragments_join_to_the_buffered_answer(client, prompt, seed):
    messages = [{"role": "user", "content": prompt}]
    options = {"temperature": 0.9, "seed": seed, "max_tokens": 48}
    chat(client, messages, **options)  # both others then find the same in the prompt cache
    buffered = chat(client, messages, **options)
    chunks = streamed(client, messages, **options)
    assert text_of(chunks) == buffered.choices[0].message.content
    reasons = [choice.finish_reason for chunk in chunks for choice in chunk.choices]
    assert [reason for reason in reasons if reason] == [buffered.choices[0].finish_reason]
    assert chunks[-1].choices == []
    assert chunks[-1].usage == buffered.usage


def test_a_stream_without_include_usage_has_none(client):
    chunks = list(chat(client, QUESTION, stream=True, max_tokens=4))
    assert all(chunk.usage is None for chunk in chunks)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert len({chunk.id for chunk in chunks}) == 1


def test_max_tokens_ends_an_answer_by_length(client):
    answer = chat(client, QUESTION, max_tokens=3, temperature=0)
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 3
    usage = answer.usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


def test_max_completion_tokens_means_the_same(client):
    answer = chat(client, QUESTION, max_completion_tokens=3, temperature=0)
    assert answer.usage.completion_tokens == 3


def test_logprobs_are_those_of_the_answer(client):
    options = {"temperature": 0, "logprobs": True, "top_logprobs": 5, "max_tokens": 8}
    answer = chat(client, QUESTION, **options)
    content = answer.choices[0].logprobs.content
    joined = b"".join(bytes(token.bytes) for token in content)
    assert joined.decode() == answer.choices[0].message.content
    for token in content:
        assert len(token.top_logprobs) == 5
        tops = [top.logprob for top in token.top_logprobs]
        assert tops == sorted(tops, reverse=True)
        assert token.logprob == tops[0], "greedy takes the likeliest"
        assert sum(math.exp(top) for top in tops) <= 1.0 + 1e-5
    chunks = streamed(client, QUESTION, **options)
    parts = [choice.logprobs for chunk in chunks for choice in chunk.choices if choice.logprobs]
    assert [token for part in parts for token in part.content or []] == content


def test_a_stop_string_ends_the_answer_and_nothing_of_it_leaks(client):
    messages = [{"role": "user", "content": "Count from one to ten in digits: 1, 2, 3"}]
    whole = chat(client, messages, temperature=0, max_tokens=40).choices[0].message.content
    # A stop string that begins inside one token and ends inside a later one.
    stop = whole[7:12]
    expected = whole[: whole.index(stop)]
    for value in (stop, ["never to be seen", stop]):
        answer = chat(client, messages, temperature=0, max_tokens=40, stop=value)
        assert answer.choices[0].message.content == expected
        assert answer.choices[0].finish_reason == "stop"
        assert text_of(streamed(client, messages, temperature=0, max_tokens=40, stop=value)) == (
            expected
        )


def test_n_gives_that_many_answers_which_a_seed_repeats(client):
    messages = [{"role": "user", "content": "Invent a name for a boat."}]
    options = {"n": 3, "seed": 5, "temperature": 1.2, "max_tokens": 12}

    def texts(**more):
        answer = chat(client, messages, **(options | more))
        assert [choice.index for choice in answer.choices] == [0, 1, 2]
        return [choice.message.content for choice in answer.choices]

    first = texts()
    assert texts() == first
    assert len(set(first)) > 1, "each choice draws its own numbers"
    assert texts(seed=6) != first
    assert len(set(texts(temperature=0))) == 1
    chunks = streamed(client, messages, **options)
    for index, whole in enumerate(first):
        parts = [c.delta.content or "" for k in chunks for c in k.choices if c.index == index]
        assert "".join(parts) == whole


def test_answers_are_the_same_alone_and_in_company(client):
    def answer(prompt):
        messages = [{"role": "user", "content": prompt}]
        options = {"temperature": 0.8, "seed": 11, "max_tokens": 24, "logprobs": True}
        choice = chat(client, messages, **options).choices[0]
        return choice.message.content, [token.logprob for token in choice.logprobs.content]

    alone = [answer(prompt) for prompt in PROMPTS]
    with ThreadPoolExecutor(len(PROMPTS)) as pool:
        assert list(pool.map(answer, PROMPTS)) == alone, "the same bits"


def test_logit_bias_forbids_a_token(client, server):
    options = {"temperature": 0, "max_tokens": 4, "logprobs": True}
    likeliest = chat(client, QUESTION, **options).choices[0].logprobs.content[0].token
    with server.http() as http:
        [token] = http.post("/tokenize", json={"prompt": likeliest}).json()["tokens"]
    other = chat(client, QUESTION, logit_bias={str(token): -100}, **options)
    assert other.choices[0].logprobs.content[0].token != likeliest


def test_content_may_be_a_list_of_parts(client):
    options = {"temperature": 0, "max_tokens": 16}
    texts = ["Add these numbers:", "2 and 2"]
    parts = [{"type": "text", "text": text} for text in texts]
    whole = chat(client, [{"role": "user", "content": "\n".join(texts)}], **options)
    split = chat(client, [{"role": "user", "content": parts}], **options)
    assert split.usage.prompt_tokens == whole.usage.prompt_tokens
    assert split.choices[0].message.content == whole.choices[0].message.content


def test_harmless_fields_are_accepted_and_listed(client):
    answer = chat(client, QUESTION, max_tokens=1, user="someone", extra_body={"frobnicate": 1})
    assert "frobnicate" in answer.model_extra["refrain"]["ignored"]


def test_any_model_name_is_accepted_and_answers(client):
    answer = client.chat.completions.create(model="gpt-4o", messages=QUESTION, max_tokens=1)
    assert answer.usage.completion_tokens == 1
