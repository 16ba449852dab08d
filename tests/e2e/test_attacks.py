"""What a client sends that means the server harm: it is refused, and memory stays bounded."""

import contextlib
import re
import socket
import time

import pytest
from test_access import QUESTION, keys

from harness import ROOT, Server

MIB = 1 << 20
# The routes as the server's own source has them, so that a new one cannot be forgotten.
ROUTE = re.compile(r'\.route\(\s*"([^"]+)"')
OPEN = {"/health", "/ready"}


def routes() -> set[str]:
    source = (ROOT / "crates" / "server" / "src").rglob("*.rs")
    return {path for file in source for path in ROUTE.findall(file.read_text())}


def connect(server: Server, timeout: float = 60) -> socket.socket:
    port = int(server.url.rsplit(":", 1)[1])
    return socket.create_connection(("127.0.0.1", port), timeout=timeout)


def answer(stream: socket.socket) -> bytes:
    """All that comes until the server hangs up."""
    said = b""
    with contextlib.suppress(ConnectionResetError, BrokenPipeError):
        while part := stream.recv(65536):
            said += part
    return said


def test_every_path_needs_a_key(default_model, tmp_path):
    keys(tmp_path / "keys", alice="")
    found = routes()
    assert len(found) > 15 and found >= OPEN
    methods = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD"]
    with Server("--api-keys", str(tmp_path / "keys")) as server, server.http() as http:
        for path in sorted(found) + ["/nothing", "/", "//v1/models", "/v1/models/"]:
            real = re.sub(r"\{[^}]*\}", "x", path)
            for method in methods:
                for headers in ({}, {"authorization": "Bearer wrong"}, {"x-api-key": ""}):
                    status = http.request(method, real, headers=headers, json={}).status_code
                    wanted = (200, 405) if path in OPEN else (401,)
                    assert status in wanted, (method, path, headers, status)


def test_a_head_that_is_too_large_is_refused(server):
    before = server.resident_bytes()
    for head in (
        b"GET /health HTTP/1.1\r\nhost: localhost\r\nx: " + b"y" * (4 * MIB) + b"\r\n\r\n",
        b"GET /health HTTP/1.1\r\nhost: localhost\r\n" + b"a: b\r\n" * 1000 + b"\r\n",
        b"GET /" + b"y" * (4 * MIB) + b" HTTP/1.1\r\nhost: localhost\r\n\r\n",
    ):
        with connect(server) as stream:
            with contextlib.suppress(ConnectionResetError, BrokenPipeError):
                stream.sendall(head)
            said = answer(stream)
            assert not said or re.match(rb"HTTP/1.1 4(31|14|00)", said), said[:80]
    assert server.resident_bytes() - before < 16 * MIB
    assert server.http().get("/health").status_code == 200


def test_a_body_that_is_too_large_is_refused(server):
    before, peak = server.resident_bytes(), 0
    for head in (b"content-length: 67108864\r\n\r\n", b"transfer-encoding: chunked\r\n\r\n"):
        with connect(server) as stream:
            stream.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n" + head)
            with contextlib.suppress(ConnectionResetError, BrokenPipeError):
                for _ in range(64):
                    part = b" " * MIB
                    if b"chunked" in head:
                        part = b"100000\r\n" + part + b"\r\n"
                    stream.sendall(part)
                    peak = max(peak, server.resident_bytes())
                if b"chunked" in head:
                    stream.sendall(b"0\r\n\r\n")
            assert stream.recv(64).startswith(b"HTTP/1.1 413 ")
    # Twice what a body may have: it grows by doubling.
    assert peak - before < 64 * MIB


def test_deep_json_is_refused(server):
    with server.http() as http:
        for text in ("[" * MIB, '{"messages":' * 200_000):
            asked = http.post("/v1/chat/completions", content=text)
            assert asked.status_code == 400
            assert "not JSON" in asked.json()["error"]["message"]


def test_a_thousand_idle_connections_are_held_and_others_are_served(default_model):
    with Server() as server, contextlib.ExitStack() as stack:
        server.http().post("/v1/chat/completions", json={"messages": QUESTION, "max_tokens": 2})
        before = server.resident_bytes()
        for number in range(1000):
            stream = stack.enter_context(connect(server))
            # One half says nothing, the other begins.
            if number % 2:
                stream.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: ")
        with server.http() as http:
            body = {"messages": QUESTION, "max_tokens": 2}
            assert http.post("/v1/chat/completions", json=body).status_code == 200
        grown = server.resident_bytes() - before
        assert grown < 64 * MIB, grown
        print(f"1,000 idle connections: {grown / MIB:.1f} MiB")


def test_a_head_that_trickles_is_given_up(server):
    began = time.monotonic()
    with connect(server) as stream:
        stream.sendall(b"GET /health HTTP/1.1\r\n")
        stream.settimeout(0.5)
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            while time.monotonic() - began < 90:
                stream.sendall(b"a")
                with contextlib.suppress(TimeoutError):
                    said = stream.recv(4096)
                    assert b" 200 " not in said
                    if not said:
                        break
    # 30 s for the head, and time in which a busy machine did nothing.
    assert 25 < time.monotonic() - began < 80


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/tokenize"])
def test_a_callers_template_is_refused_or_without_effect(server, path):
    template = "{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}"
    body = {"messages": QUESTION, "max_tokens": 2}
    if path == "/v1/responses":
        body = {"input": "Hi", "max_output_tokens": 2}
    with server.http() as http:
        plain = http.post(path, json=body)
        assert plain.status_code == 200
        asked = http.post(path, json=body | {"chat_template": template})
        if path == "/tokenize":
            assert asked.status_code == 400 or asked.json() == plain.json()
            return
        assert asked.status_code == 400
        assert asked.json()["error"]["param"] == "chat_template"
