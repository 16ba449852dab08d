"""Pages of other origins (CORS): what a browser asks before it sends, and what a page may read."""

import pytest
from test_access import QUESTION, keys

from harness import Server, command

PAGE = "https://chat.example"
# As a browser asks for a page whose script sends JSON and a key with OpenAI's client.
ASKED = {
    "access-control-request-method": "POST",
    "access-control-request-headers": "authorization,content-type,x-stainless-lang",
}
CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def guarded(default_model, tmp_path_factory):
    """A server with a key that two origins may ask, and the key's header."""
    path = tmp_path_factory.mktemp("keys") / "keys"
    made = keys(path, alice="")
    flags = ["--api-keys", str(path), "--cors-origin", f"{PAGE}:443,http://localhost:3000"]
    with Server(*flags) as server:
        yield server, {"authorization": f"Bearer {made['alice']}"}


def preflight(server: Server, origin: str, **headers: str):
    with server.http() as http:
        return http.options(CHAT, headers={"origin": origin, **ASKED, **headers})


def test_nothing_is_said_of_origins_without_the_flag(server):
    answer = preflight(server, PAGE)
    assert answer.status_code == 405
    with server.http() as http:
        read = http.get("/v1/models", headers={"origin": PAGE})
    for headers in (answer.headers, read.headers):
        assert not [name for name in headers if name.startswith("access-control")]


@pytest.mark.parametrize("origin", [PAGE, "http://localhost:3000"])
def test_a_browser_asks_without_a_key_and_a_page_with_one(guarded, origin):
    server, key = guarded
    asked = preflight(server, origin)
    assert asked.status_code == 200 and asked.content == b""
    assert asked.headers["access-control-allow-origin"] == origin
    allowed = asked.headers["access-control-allow-headers"].split(",")
    assert allowed == ASKED["access-control-request-headers"].split(",")
    methods = asked.headers["access-control-allow-methods"].split(",")
    assert set(methods) == {"GET", "POST", "DELETE"}
    assert int(asked.headers["access-control-max-age"]) > 0
    # A key is not a cookie: nothing that a browser would add by itself counts.
    assert "access-control-allow-credentials" not in asked.headers
    body = {"messages": QUESTION, "max_tokens": 2}
    with server.http() as http:
        refused = http.post(CHAT, json=body, headers={"origin": origin})
        answer = http.post(CHAT, json=body, headers={"origin": origin, **key})
        stream = http.post(CHAT, json=body | {"stream": True}, headers={"origin": origin, **key})
    # The page may also read why it was refused.
    for one, status in ((refused, 401), (answer, 200), (stream, 200)):
        assert one.status_code == status
        assert one.headers["access-control-allow-origin"] == origin
        assert "origin" in one.headers["vary"].lower()
        exposed = one.headers["access-control-expose-headers"].split(",")
        assert {"x-request-id", "request-id", "retry-after"} == set(exposed)
        assert one.headers["x-request-id"].startswith("req_")
    assert "data: [DONE]" in stream.text


@pytest.mark.parametrize(
    "origin",
    ["https://evil.example", f"{PAGE}.evil.example", "http://chat.example", "null", f"{PAGE}:8"],
)
def test_other_pages_may_read_nothing(guarded, origin):
    server, key = guarded
    asked = preflight(server, origin)
    assert "access-control-allow-origin" not in asked.headers
    with server.http() as http:
        answer = http.get("/v1/models", headers={"origin": origin, **key})
    assert "access-control-allow-origin" not in answer.headers


def test_a_page_of_a_rebound_name_gets_nothing_although_its_origin_may_ask(guarded):
    server, key = guarded
    for host in ("chat.example", "evil.example"):
        asked = preflight(server, PAGE, host=host)
        assert asked.status_code == 403
        with server.http() as http:
            answer = http.get("/v1/models", headers={"origin": PAGE, "host": host, **key})
        assert answer.status_code == 403
        for headers in (asked.headers, answer.headers):
            assert "access-control-allow-origin" not in headers


def test_no_page_operates_the_prompt_cache(guarded):
    server, key = guarded
    with server.http() as http:
        answer = http.post("/refrain/cache/clear", json={}, headers={"origin": PAGE, **key})
    assert answer.status_code == 400
    assert "web pages" in answer.json()["error"]["message"]


def test_any_origin_can_be_allowed(default_model):
    with Server("--cors-origin", "*") as server, server.http() as http:
        page = "https://any.example"
        assert preflight(server, page).headers["access-control-allow-origin"] == "*"
        answer = http.get("/v1/models", headers={"origin": page})
        assert answer.headers["access-control-allow-origin"] == "*"
        assert http.get("/v1/models", headers={"host": "evil.example"}).status_code == 403


@pytest.mark.parametrize("origin", ["chat.example", "null", f"{PAGE}/", "https://*.example"])
def test_what_is_no_origin_is_refused_at_the_start(origin):
    said = command("serve", "--cors-origin", origin, check=2).stderr
    assert "https://chat.example" in said
