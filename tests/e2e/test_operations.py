"""Models, tokens and health."""

import anthropic
import pytest
from openai import NotFoundError

from harness import Server

TEXTS = ["Hello, world!", " two  spaces ", "naïve 😀 你好\n\ttab", "<|im_start|>user"]


def test_the_model_is_listed_and_described(client):
    [name] = [model.id for model in client.models.list()]
    assert client.models.retrieve(name).id == name
    with pytest.raises(NotFoundError) as caught:
        client.models.retrieve("no-such-model")
    assert "no-such-model" in caught.value.message


def test_the_model_is_found_under_its_other_names(gpt2):
    with Server(str(gpt2), "--model-name", "gpt-4o,claude", "--strict-model") as fresh:
        client = fresh.client()
        own, *others = [model.id for model in client.models.list()]
        assert others == ["gpt-4o", "claude"]
        assert client.models.retrieve("gpt-4o").id == "gpt-4o"
        asked = {"prompt": "Hi", "max_tokens": 1}
        assert client.completions.create(model="claude", **asked).model == own
        with pytest.raises(NotFoundError) as caught:
            client.completions.create(model="gpt-5", **asked)
        assert "claude" in caught.value.message


def test_anthropics_clients_get_their_own_shape_of_models(server):
    client = anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)
    page = client.models.list()
    [model] = page.data
    assert (model.type, model.lifecycle, page.has_more) == ("model", "active", False)
    assert client.models.retrieve(model.id) == model
    with pytest.raises(anthropic.NotFoundError) as caught:
        client.models.retrieve("no-such-model")
    assert caught.value.body["error"]["type"] == "not_found_error"


@pytest.mark.parametrize("text", TEXTS)
def test_tokenize_and_detokenize_are_inverse(server, text):
    with server.http() as http:
        answer = http.post("/tokenize", json={"prompt": text}).json()
        assert answer["count"] == len(answer["tokens"]) > 0
        back = http.post("/detokenize", json={"tokens": answer["tokens"]}).json()
        assert back["prompt"] == text


def test_health_is_ok(server):
    with server.http() as http:
        assert http.get("/health").status_code == 200
