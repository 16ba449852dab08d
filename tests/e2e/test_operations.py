"""Models, tokens and health."""

import pytest
from openai import NotFoundError

TEXTS = ["Hello, world!", " two  spaces ", "naïve 😀 你好\n\ttab", "<|im_start|>user"]


def test_the_model_is_listed_and_described(client):
    [name] = [model.id for model in client.models.list()]
    assert client.models.retrieve(name).id == name
    with pytest.raises(NotFoundError) as caught:
        client.models.retrieve("no-such-model")
    assert "no-such-model" in caught.value.message


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
