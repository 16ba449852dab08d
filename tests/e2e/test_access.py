"""Who may reach the server and how often; ids of requests; prompts that are not computed; and how
far a long one is."""

import hashlib
import json
import threading

import anthropic
import openai
import pytest

from harness import Server

QUESTION = [{"role": "user", "content": "Name three rivers."}]


def keys(path, **limits: str) -> dict[str, str]:
    """A file of keys with these limits, and the keys."""
    made = {name: f"rk-{name}" for name in limits}
    lines = [
        f"{name} {hashlib.sha256(key.encode()).hexdigest()} {limits[name]}"
        for name, key in made.items()
    ]
    path.write_text("\n".join(lines) + "\n")
    return made


def ask(client, **options):
    options = {"model": "smollm2", "messages": QUESTION, "max_tokens": 4, **options}
    return client.chat.completions.create(**options)


def test_a_key_may_ask_as_often_as_its_line_says(default_model, tmp_path):
    made = keys(tmp_path / "keys", few="requests=3", plenty="", tokens="tokens=60")
    with Server("--api-keys", str(tmp_path / "keys")) as server:
        few, plenty = server.client(made["few"]), server.client(made["plenty"])
        for _ in range(3):
            ask(few)
        with pytest.raises(openai.RateLimitError) as raised:
            ask(few)
        assert raised.value.code == "rate_limit_exceeded"
        assert "3 requests in a minute" in raised.value.message
        assert 1 <= int(raised.value.response.headers["retry-after"]) <= 20
        for _ in range(5):
            ask(plenty)
        # What does not compute is not counted.
        few.models.list()
        # Tokens: the first request, with a prompt of its own, takes more than there are; one that
        # is reused costs nothing, but comes too soon.
        tokens = server.client(made["tokens"])
        words = [{"role": "user", "content": "river " * 100}]
        ask(tokens, messages=words)
        with pytest.raises(openai.RateLimitError, match="60 tokens in a minute"):
            ask(tokens, messages=words)
        claude = anthropic.Anthropic(base_url=server.url, api_key=made["few"], max_retries=0)
        with pytest.raises(anthropic.RateLimitError) as refused:
            claude.messages.create(model="smollm2", max_tokens=4, messages=QUESTION)
        assert refused.value.body["error"]["type"] == "rate_limit_error"


def test_requests_at_the_same_time_are_counted_while_they_run(default_model, tmp_path):
    made = keys(tmp_path / "keys", one="running=1")
    with Server("--api-keys", str(tmp_path / "keys")) as server:
        client = server.client(made["one"])
        stream = ask(client, max_tokens=2000, stream=True, extra_body={"ignore_eos": True})
        next(iter(stream))
        with pytest.raises(openai.RateLimitError, match="1 requests at the same time"):
            ask(client)
        stream.close()
        done = threading.Event()
        for _ in range(50):
            try:
                ask(client)
                break
            except openai.RateLimitError:
                done.wait(0.1)
        else:
            raise AssertionError("a client that went away is still counted")


def test_another_name_in_host_is_refused(server):
    with server.http() as http:
        for host in ("evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80"):
            answer = http.get("/v1/models", headers={"host": host})
            assert answer.status_code == 403, host
            assert "--host-name" in answer.json()["error"]["message"]
        for host in ("localhost", "localhost:1234", "127.0.0.1", "[::1]:80"):
            assert http.get("/v1/models", headers={"host": host}).status_code == 200, host


def test_a_name_that_is_allowed_is_taken(default_model):
    with Server("--host-name", "llm.example,other.example") as server, server.http() as http:
        for host in ("LLM.example:443", "other.example", "localhost"):
            assert http.get("/v1/models", headers={"host": host}).status_code == 200, host
        assert http.get("/v1/models", headers={"host": "x.example"}).status_code == 403


def test_each_answer_has_an_id_of_its_own(server):
    with server.http() as http:
        answers = [http.get("/v1/models"), http.get("/nothing"), http.post("/v1/messages", json={})]
        ids = [answer.headers["x-request-id"] for answer in answers]
        assert [answer.headers["request-id"] for answer in answers] == ids
        assert len(set(ids)) == 3
        assert all(one.startswith("req_") for one in ids)


def test_prompts_are_rendered_as_they_are_computed(server, client):
    with server.http() as http:
        body = {"messages": QUESTION}
        ids = http.post("/v1/chat/completions/render", json=body).json()["token_ids"]
        assert len(ids) == ask(client).usage.prompt_tokens
        tokenized = http.post("/tokenize", json=body).json()
        assert ids == tokenized["tokens"]
        texts = {"prompt": ["Once", "Once upon"]}
        rendered = http.post("/v1/completions/render", json=texts).json()
        assert [len(one["token_ids"]) for one in rendered] == [1, 2]


def test_a_stream_tells_how_far_a_long_prompt_is(server, client):
    words = [{"role": "user", "content": " ".join(f"word{n}" for n in range(500))}]
    options = {"messages": words, "stream": True, "max_tokens": 2}
    asked = {"include_progress": True, "include_usage": True}
    chunks = list(ask(client, stream_options=asked, **options))
    progress = [
        chunk.model_extra["refrain"]["progress"]
        for chunk in chunks
        if "progress" in (chunk.model_extra.get("refrain") or {})
    ]
    prompt = chunks[-1].usage.prompt_tokens
    assert len(progress) > 2
    assert [one["tokens"] for one in progress] == sorted(one["tokens"] for one in progress)
    assert all(one["prompt_tokens"] == prompt for one in progress)
    assert progress[-1]["tokens"] == prompt
    silent = list(ask(client, **options))
    assert not any("progress" in json.dumps(chunk.model_extra) for chunk in silent)


def test_anthropics_diagnostics_name_what_changed(server):
    claude = anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=60)
    system = "You know rivers. " * 30

    def message(text, before=None, **options):
        options = {"model": "smollm2", "max_tokens": 4, "system": system, **options}
        if before:
            options["extra_body"] = {"diagnostics": {"previous_message_id": before}}
        return claude.messages.create(messages=[{"role": "user", "content": text}], **options)

    def reason(answer):
        return answer.model_dump()["diagnostics"]["cache_miss_reason"]

    first = message("Name a river in Asia, please.")
    assert reason(message("Name a river in Asia, please.", first.id)) is None
    changed = reason(message("Name a river in Asia, now.", first.id))
    assert changed["type"] == "messages_changed"
    assert 0 < changed["cache_missed_input_tokens"] < 40
    other = reason(message("Name a river in Asia, please.", first.id, system="No. " + system))
    assert other["type"] == "system_changed"
    unknown = reason(message("Name a river.", "msg_unknown"))
    assert unknown == {"type": "previous_message_not_found"}
