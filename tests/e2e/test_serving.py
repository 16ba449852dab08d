"""The server as a process: start, memory, clients that leave, a full queue, the end."""

import socket
import threading
import time
from pathlib import Path

import httpx2
import pytest

from harness import Server

LONG = {"messages": [{"role": "user", "content": "Tell me a very long story."}]}
# Keeps a request busy however early the model would have stopped.
BUSY = LONG | {"max_tokens": 2000, "stream": True, "ignore_eos": True, "temperature": 0}
CHAT = "/v1/chat/completions"
MODEL_BYTES = 98_362_432
KV_BYTES_PER_TOKEN = 30 * 2 * 3 * 64 * 2
MIB = 1 << 20


def test_the_first_answer_comes_within_a_second_and_a_half(server):
    """`server` has put the model's file into the page cache."""
    with Server() as fresh:
        body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
        answer = httpx2.post(fresh.url + CHAT, json=body, timeout=60)
        took = time.monotonic() - fresh.started
        assert answer.status_code == 200
        assert took < 1.5, f"first answer after {took:.2f} s"


def test_resident_memory_is_one_copy_of_the_weights(default_model):
    with Server() as fresh, fresh.http() as http:
        tokens = 0
        for number in range(4):
            content = f"{number} " + "word " * 400
            body = {"messages": [{"role": "user", "content": content}], "max_tokens": 16}
            usage = http.post(CHAT, json=body).json()["usage"]
            tokens += usage["total_tokens"]
        limit = MODEL_BYTES + tokens * KV_BYTES_PER_TOKEN + 150 * MIB
        resident = fresh.resident_bytes()
        assert resident < limit, f"{resident / MIB:.0f} MiB resident, {limit / MIB:.0f} allowed"


def first_chunk(http: httpx2.Client, body: dict):
    """Opens a stream and returns it after its first line."""
    stream = http.stream("POST", CHAT, json=body)
    answer = stream.__enter__()
    assert answer.status_code == 200
    lines = answer.iter_lines()
    next(lines)
    return stream, lines


def test_a_client_that_goes_away_stops_its_work(default_model):
    with Server() as fresh, fresh.http() as http:
        stream, _ = first_chunk(http, BUSY)
        stream.__exit__(None, None, None)
        time.sleep(0.5)
        before = fresh.cpu_seconds()
        time.sleep(1.0)
        assert fresh.cpu_seconds() - before < 0.3, "still computing for nobody"
        assert http.post(CHAT, json=LONG | {"max_tokens": 1}).status_code == 200


def test_a_full_queue_says_when_to_come_back(default_model):
    with Server("--max-running", "1", "--max-queue", "1") as fresh, fresh.http() as http:
        stream, _ = first_chunk(http, BUSY)
        waiting = threading.Thread(
            target=lambda: http.post(CHAT, json=LONG | {"max_tokens": 1}), daemon=True
        )
        waiting.start()
        time.sleep(0.3)
        answer = http.post(CHAT, json=LONG | {"max_tokens": 1})
        assert answer.status_code == 429
        assert int(answer.headers["retry-after"]) >= 1
        assert answer.json()["error"]["message"]
        stream.__exit__(None, None, None)
        waiting.join(timeout=30)
        assert not waiting.is_alive(), "the one that waited is served"
        assert http.post(CHAT, json=LONG | {"max_tokens": 1}).status_code == 200


def test_a_termination_finishes_what_runs_and_takes_nothing_new(default_model):
    with Server() as fresh, fresh.http() as http:
        stream, lines = first_chunk(http, BUSY | {"max_tokens": 150})
        exit_status = []
        stopping = threading.Thread(target=lambda: exit_status.append(fresh.terminate()))
        stopping.start()
        rest = [line for line in lines if line]
        assert rest[-1] == "data: [DONE]"
        assert any('"finish_reason":"length"' in line.replace(" ", "") for line in rest)
        stream.__exit__(None, None, None)
        stopping.join()
        assert exit_status == [0]
        with pytest.raises(httpx2.TransportError):
            httpx2.get(fresh.url + "/health", timeout=5)


@pytest.mark.parametrize(
    "half", [b"GET /hea", b"POST /v1/completions HTTP/1.1\r\ncontent-length: 100\r\n\r\n{"]
)
def test_half_a_request_does_not_hold_up_the_end(default_model, half):
    with Server() as fresh:
        host, port = fresh.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(half)
            time.sleep(0.3)
            start = time.monotonic()
            assert fresh.terminate() == 0
            assert time.monotonic() - start < 5


def test_prompts_that_cannot_fit_cost_neither_time_nor_memory(default_model):
    body = {"messages": [{"role": "user", "content": "aB1 ." * 3_000_000}]}
    with Server("--kv-budget", "64MiB") as fresh, fresh.http() as http:
        start = time.monotonic()
        for _ in range(3):
            answer = http.post(CHAT, json=body)
            assert answer.status_code == 400
            assert answer.json()["error"]["code"] == "context_length_exceeded"
        assert time.monotonic() - start < 10
        assert fresh.resident_bytes() < 600 * MIB


def test_the_name_it_was_started_with_is_served(default_model):
    with Server("smollm2", "--strict-model") as fresh, fresh.http() as http:
        assert http.get("/v1/models/smollm2").json()["id"] == "smollm2"
        assert http.post(CHAT, json=LONG | {"model": "smollm2", "max_tokens": 1}).is_success
        assert http.post(CHAT, json=LONG | {"model": "other"}).status_code == 404


def test_it_listens_on_loopback_unless_told_otherwise(server):
    assert server.url.startswith("http://127.0.0.1:")


def test_strict_model_refuses_other_names(gpt2):
    with Server(str(gpt2), "--strict-model") as fresh, fresh.http() as http:
        own = http.get("/v1/models").json()["data"][0]["id"]
        assert own == Path(gpt2).name
        good = http.post("/v1/completions", json={"model": own, "prompt": "Hi", "max_tokens": 1})
        assert good.status_code == 200
        bad = http.post("/v1/completions", json={"model": "other", "prompt": "Hi"})
        assert bad.status_code == 404
        assert bad.json()["error"]["code"] == "model_not_found"
