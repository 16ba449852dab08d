"""Many clients at once: the pages that they share, and one that does not read its answer."""

import json
import re
import socket
import threading
import time

from harness import Server

PAGE = 16
MIB = 1 << 20


def metrics(http) -> dict[str, int]:
    """All metrics, which the text format lists one a line."""
    text = http.get("/metrics").text
    return {name: int(value) for name, value in re.findall(r"^(\w+) (\d+)$", text, re.MULTILINE)}


class Stream(threading.Thread):
    """Reads an answer in a thread of its own, and counts its tokens."""

    def __init__(self, server: Server, prompt: list[int]):
        super().__init__(daemon=True)
        self.server, self.prompt = server, prompt
        self.tokens = 0
        self.start()

    def run(self) -> None:
        # With logprobs each token is listed, also one that is not a whole character yet.
        body = {"prompt": self.prompt, "max_tokens": 400, "stream": True, "ignore_eos": True}
        body |= {"logprobs": 0, "seed": 7}
        with (
            self.server.http() as http,
            http.stream("POST", "/v1/completions", json=body) as answer,
        ):
            for line in answer.iter_lines():
                if line.startswith("data: {"):
                    [choice] = json.loads(line.removeprefix("data: "))["choices"]
                    self.tokens += len((choice["logprobs"] or {"tokens": []})["tokens"])


def test_a_shared_prefix_is_held_once(default_model):
    """N sequences on P common tokens: P // 16 pages together, the others each its own."""
    prefix, clients = 100, 6
    common = [1000 + 3 * i for i in range(prefix)]
    with Server() as server, server.http() as http:
        prompts = [common + [5000 + client] * 10 for client in range(clients)]
        streams = [Stream(server, prompt) for prompt in prompts]
        while min(stream.tokens for stream in streams) == 0:
            time.sleep(0.005)
        for _ in range(5):
            # The last token of an answer has no K/V yet, and what is seen may be a step old.
            least = [max(stream.tokens - 2, 0) for stream in streams]
            seen = metrics(http)
            time.sleep(0.1)
            most = [stream.tokens for stream in streams]
            assert max(most) < 400, "an answer has ended"
            assert seen["refrain_requests_running"] == clients
            assert seen["refrain_kv_pages_shared"] == prefix // PAGE
            own = seen["refrain_kv_pages_in_use"] - prefix // PAGE
            assert pages(prefix, least) <= own <= pages(prefix, most)
        for stream in streams:
            stream.join()
        rest = metrics(http)
        assert rest["refrain_kv_pages_in_use"] == rest["refrain_kv_pages_shared"] == 0
        free, cached = rest["refrain_kv_pages_free"], rest["refrain_prompt_cache_pages"]
        assert free + cached == rest["refrain_kv_pages"]


def pages(prefix: int, answered: list[int]) -> int:
    """Pages of sequences with so many tokens after ten of their own, the prefix's full ones not."""
    return sum(-(-(prefix % PAGE + 10 + tokens) // PAGE) for tokens in answered)


def test_who_does_not_read_holds_up_nobody(default_model):
    """Each chunk lists alternatives, so that what the sockets hold is soon full."""
    body = {"messages": [{"role": "user", "content": "Tell me a story."}], "max_tokens": 2000}
    slow = body | {"n": 8, "stream": True, "logprobs": True, "top_logprobs": 20, "seed": 1}
    text = json.dumps(slow | {"ignore_eos": True})
    head = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n"
    head += f"content-length: {len(text)}\r\n\r\n"
    with Server() as server, server.http() as http:
        host, port = server.url.removeprefix("http://").split(":")
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect((host, int(port)))
            connection.sendall((head + text).encode())
            deadline = time.monotonic() + 60
            while not metrics(http)["refrain_requests_unread_total"]:
                assert time.monotonic() < deadline, "an answer is kept without a bound"
                short = body | {"max_tokens": 8}
                assert http.post("/v1/chat/completions", json=short).status_code == 200
            seen = metrics(http)
            assert seen["refrain_kv_pages_in_use"] == seen["refrain_requests_running"] == 0
            assert server.resident_bytes() < 400 * MIB
            connection.settimeout(10)
            answer = b""
            while piece := connection.recv(1 << 20):
                answer += piece
                # The words of the answer are a list of tokens, and may be "error" too.
                if b'"error":{' in answer[-2000:]:
                    break
            assert b'"code":"unread"' in answer[-2000:]
