"""Bad requests: always a 4xx in OpenAI's shape that names the field, never a hang."""

import json

import httpx2
import pytest

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
USER = [{"role": "user", "content": "Hi"}]
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]

# Path, body, and the field that the error names.
BAD = [
    (CHAT, {"messages": []}, "messages"),
    (CHAT, {}, "messages"),
    (CHAT, {"messages": "Hi"}, "messages"),
    (CHAT, {"messages": [{"role": "wizard", "content": "Hi"}]}, "messages"),
    (CHAT, {"messages": [{"content": "Hi"}]}, "messages"),
    (CHAT, {"messages": [{"role": "user", "content": 5}]}, "messages"),
    (CHAT, {"messages": USER, "max_tokens": -1}, "max_tokens"),
    (CHAT, {"messages": USER, "max_tokens": "many"}, "max_tokens"),
    (CHAT, {"messages": USER, "temperature": -0.5}, "temperature"),
    (CHAT, {"messages": USER, "temperature": "hot"}, "temperature"),
    (CHAT, {"messages": USER, "top_p": 2}, "top_p"),
    (CHAT, {"messages": USER, "n": 0}, "n"),
    (CHAT, {"messages": USER, "n": 1_000_000}, "n"),
    (CHAT, {"messages": USER, "top_logprobs": 500, "logprobs": True}, "top_logprobs"),
    (CHAT, {"messages": USER, "logit_bias": {"x": 1}}, "logit_bias"),
    (CHAT, {"messages": USER, "logit_bias": {"99999999": 1}}, "logit_bias"),
    (CHAT, {"messages": USER, "stop": 5}, "stop"),
    (CHAT, {"messages": USER, "stream": "yes"}, "stream"),
    (CHAT, {"messages": USER, "tool_choice": "required"}, "tool_choice"),
    (CHAT, {"messages": USER, "tools": [{}], "tool_choice": "none"}, "tools"),
    (CHAT, {"messages": USER, "response_format": {"type": "xml"}}, "response_format"),
    (CHAT, {"messages": USER, "min_tokens": 3}, "min_tokens"),
    (CHAT, {"messages": USER, "mirostat": 2}, "mirostat"),
    (CHAT, {"messages": USER, "best_of": 3}, "best_of"),
    (CHAT, {"messages": USER, "max_tokens": 1.5}, "max_tokens"),
    (CHAT, {"messages": USER, "max_tokens": 1e300}, "max_tokens"),
    (CHAT, {"messages": USER, "seed": 1 << 64}, "seed"),
    (CHAT, {"messages": USER, "seed": -(1 << 64)}, "seed"),
    (TEXT, {"prompt": "Hi", "seed": 0.5}, "seed"),
    (CHAT, {"messages": USER, "stop_token_ids": [99999999]}, "stop_token_ids"),
    (TEXT, {}, "prompt"),
    (TEXT, {"prompt": {}}, "prompt"),
    (TEXT, {"prompt": [99999999]}, "prompt"),
    (TEXT, {"prompt": [-1]}, "prompt"),
    (TEXT, {"prompt": "Hi", "max_tokens": -5}, "max_tokens"),
]


def assert_error(answer: httpx2.Response, field: str | None = None, status: int = 400) -> dict:
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert error["type"] and error["message"]
    assert set(error) >= {"message", "type", "param", "code"}
    if field:
        assert error["param"].split(".")[0].split("[")[0] == field, error
    return error


@pytest.fixture(scope="module")
def http(server):
    with server.http() as client:
        yield client


@pytest.mark.parametrize(("path", "body", "field"), BAD)
def test_a_bad_field_is_named(http, path, body, field):
    assert_error(http.post(path, json={"model": "smollm2"} | body), field)


def test_a_seed_has_64_bits_and_one_that_has_more_is_told_so(http):
    body = {"model": "smollm2", "prompt": "Hi", "max_tokens": 4, "temperature": 1.5}
    texts = [
        http.post(TEXT, json=body | {"seed": seed}).json()["choices"][0]["text"]
        for seed in ((1 << 64) - 1, -1, 1 << 63, (1 << 63) + 1)
    ]
    assert texts[0] == texts[1]
    error = assert_error(http.post(TEXT, json=body | {"seed": 1 << 64}), "seed")
    assert "at most 18446744073709551615" in error["message"]


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b'"text"', b"\xff\xfe{}", b'{"messages": "\xff"}', b"[" * 100_000],
)
def test_a_body_that_is_no_json_object_is_refused(http, body):
    answer = http.post(CHAT, content=body, headers={"content-type": "application/json"})
    assert_error(answer)


def test_invalid_utf_8_inside_a_message_is_refused(http):
    body = json.dumps({"messages": USER}).encode().replace(b"Hi", b"\xc3\x28")
    assert_error(http.post(CHAT, content=body, headers={"content-type": "application/json"}))


def test_a_body_of_50_mb_is_refused(http):
    body = json.dumps({"messages": [{"role": "user", "content": "x" * 50_000_000}]})
    try:
        answer = http.post(CHAT, content=body, headers={"content-type": "application/json"})
    except httpx2.WriteError:
        return  # the server may close before it has read everything
    assert_error(answer, status=413)


def test_a_prompt_over_the_context_is_refused(http):
    long = "word " * 20_000
    error = assert_error(http.post(CHAT, json={"messages": [{"role": "user", "content": long}]}))
    assert error["code"] == "context_length_exceeded"
    assert error["param"] == "messages"
    error = assert_error(http.post(TEXT, json={"prompt": long}), "prompt")
    assert error["code"] == "context_length_exceeded"


def test_what_asks_for_nothing_is_taken(http):
    neutral = {"min_tokens": 0, "mirostat": 0, "tools": [], "tool_choice": "none", "top_p": 0}
    neutral |= {"response_format": {"type": "text"}, "best_of": 1, "typical_p": 1}
    answer = http.post(CHAT, json={"messages": USER, "max_tokens": 1} | neutral)
    assert answer.status_code == 200, answer.text
    assert answer.json()["refrain"]["ignored"] == []


def test_tools_that_the_template_does_not_read_are_listed(http):
    body = {"messages": USER, "max_tokens": 1, "tools": TOOLS, "tool_choice": "none"}
    answer = http.post(CHAT, json=body)
    assert answer.status_code == 200, answer.text
    assert answer.json()["refrain"]["ignored"] == ["tools"]


def test_unknown_fields_are_listed_within_a_limit(http):
    many = {f"field_{number}": 1 for number in range(10_000)}
    answer = http.post(CHAT, json={"messages": USER, "max_tokens": 1} | many)
    assert 0 < len(answer.json()["refrain"]["ignored"]) <= 32


def test_an_unknown_path_and_a_wrong_method_are_said(http):
    assert_error(http.get("/v1/nothing"), status=404)
    assert_error(http.get(CHAT), status=405)


def test_the_server_still_answers_after_all_that(http):
    answer = http.post(CHAT, json={"messages": USER, "max_tokens": 1})
    assert answer.status_code == 200
    assert answer.json()["usage"]["completion_tokens"] == 1
