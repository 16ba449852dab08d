"""TLS: clients that speak it, files that are not taken, and connections that come to nothing."""

import contextlib
import socket
import ssl
import threading
import time

import httpx2
import openai
import pytest
import trustme
from test_access import QUESTION, keys

from harness import Server, command


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    """Files of an authority, of a certificate of this machine by it, and of its key; and the key
    of another certificate."""
    folder = tmp_path_factory.mktemp("tls")
    made = trustme.CA()
    one, other = made.issue_cert("localhost", "127.0.0.1"), made.issue_cert("localhost")
    made.cert_pem.write_to_path(folder / "ca.pem")
    for number, blob in enumerate(one.cert_chain_pems):
        blob.write_to_path(folder / "cert.pem", append=number > 0)
    one.private_key_pem.write_to_path(folder / "key.pem")
    other.private_key_pem.write_to_path(folder / "other.pem")
    return folder


def flags(folder, certificate: str = "cert.pem", key: str = "key.pem") -> list[str]:
    return ["--tls-cert", str(folder / certificate), "--tls-key", str(folder / key)]


@pytest.fixture(scope="module")
def server(default_model, authority):
    with Server(*flags(authority)) as running:
        yield running


@pytest.fixture(scope="module")
def trust(authority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(authority / "ca.pem"))


def official(server: Server, trust: ssl.SSLContext, key: str = "none") -> openai.OpenAI:
    http = httpx2.Client(verify=trust, timeout=60)
    base = f"{server.url}/v1"
    return openai.OpenAI(base_url=base, api_key=key, max_retries=0, http_client=http)


def ask(client: openai.OpenAI, **options):
    options = {"model": "smollm2", "messages": QUESTION, "max_tokens": 4, **options}
    return client.chat.completions.create(**options)


def address(server: Server) -> tuple[str, int]:
    return "127.0.0.1", int(server.url.rsplit(":", 1)[1])


def test_clients_speak_to_it_with_and_without_a_stream(server, trust):
    assert server.url.startswith("https://")
    client = official(server, trust)
    assert ask(client).choices[0].message.content
    assert len(list(ask(client, stream=True))) > 2
    assert client.models.list().data


def test_nobody_is_answered_in_plain_or_trusted_unknown(server, trust):
    with pytest.raises(httpx2.HTTPError):
        httpx2.get(server.url.replace("https", "http") + "/health", timeout=20)
    with pytest.raises(httpx2.ConnectError, match="certificate"):
        httpx2.get(f"{server.url}/health", timeout=20)
    assert httpx2.get(f"{server.url}/health", verify=trust, timeout=20).status_code == 200


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_two_versions_are_spoken_and_http_1(server, authority, version):
    context = ssl.create_default_context(cafile=str(authority / "ca.pem"))
    context.minimum_version = context.maximum_version = version
    context.set_alpn_protocols(["h2", "http/1.1"])
    plain = socket.create_connection(address(server), timeout=20)
    with plain, context.wrap_socket(plain, server_hostname="localhost") as stream:
        assert stream.selected_alpn_protocol() == "http/1.1"
        assert stream.version() == version.name.replace("_", ".")


def test_names_and_origins_are_looked_at_as_without(default_model, authority, trust):
    page = "https://chat.example"
    allowed = ["--cors-origin", page, "--host-name", "llm.example"]
    with (
        Server(*flags(authority), *allowed) as server,
        httpx2.Client(base_url=server.url, verify=trust, timeout=60) as http,
    ):
        for host, status in (("evil.example", 403), ("llm.example", 200), ("localhost", 200)):
            answer = http.get("/v1/models", headers={"host": host, "origin": page})
            assert answer.status_code == status, host
            assert ("access-control-allow-origin" in answer.headers) == (status == 200)


def test_the_cache_commands_speak_it(server, authority, tmp_path):
    ca = ["--ca-cert", str(authority / "ca.pem")]
    assert "ram" in command("cache", "stats", "--url", server.url, *ca, "--json").stdout
    by_name = server.url.replace("127.0.0.1", "localhost")
    command("cache", "ls", "--url", by_name, *ca)
    refused = command("cache", "stats", "--url", server.url, check=1).stderr
    assert "certificate" in refused.lower()
    empty = tmp_path / "empty.pem"
    for text, problem in (
        ("", "no certificate in PEM form"),
        ("-----BEGIN CERTIFICATE-----\n?", "not PEM as it should be"),
    ):
        empty.write_text(text)
        said = command("cache", "stats", "--url", server.url, "--ca-cert", str(empty), check=1)
        assert problem in said.stderr
    said = command("cache", "stats", "--url", server.url, "--ca-cert", "/nowhere", check=1).stderr
    assert "--ca-cert /nowhere: No such file" in said


def test_files_that_are_not_taken_are_named(authority, tmp_path):
    whole = (authority / "cert.pem").read_text()
    key = (authority / "key.pem").read_text()
    files = {
        "empty": ("", "no certificate in PEM form", "no private key in PEM form"),
        "garbage": ("\x00\x01binary" * 100, "no certificate in PEM form", "no private key"),
        "cut": (whole[:200], "END line is missing", "END line is missing"),
        "coded": (
            "-----BEGIN CERTIFICATE-----\n???\n-----END CERTIFICATE-----\n",
            "not base64",
            "not base64",
        ),
        "nothing": (
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            "is not taken",
            "no private key in PEM form",
        ),
        "swapped": (key, "no certificate in PEM form", None),
        "many": (whole * 20, "more than 16 certificates", None),
        "large": ("#" * (1 << 20) + "\n", "more than 1048576 bytes", "more than 1048576 bytes"),
    }
    for name, (text, as_certificate, as_key) in files.items():
        path = tmp_path / f"{name}.pem"
        path.write_text(text)
        said = command("serve", *flags(authority, str(path)), check=1).stderr
        assert as_certificate in said and str(path) in said, (name, said)
        if as_key:
            said = command("serve", *flags(authority, key=str(path)), check=1).stderr
            assert as_key in said and str(path) in said, (name, said)
            assert "Zm9v" not in said
    said = command("serve", *flags(authority, key="other.pem"), check=1).stderr
    assert "it is not the key of the certificate in" in said and "other.pem" in said
    said = command("serve", *flags(authority, "missing.pem"), check=1).stderr
    assert "missing.pem: cannot read it: No such file" in said
    said = command("serve", "--tls-cert", "cert.pem", check=2).stderr
    assert "--tls-key" in said


def test_a_handshake_that_never_ends_is_ended(server):
    began = time.monotonic()
    hello = bytes.fromhex("16030100c8010000c40303")
    with contextlib.ExitStack() as stack:
        silent, half = (
            stack.enter_context(socket.create_connection(address(server), timeout=60))
            for _ in range(2)
        )
        half.sendall(hello)
        for one in (silent, half):
            with contextlib.suppress(ConnectionResetError):
                while one.recv(4096):
                    pass
    assert 5 < time.monotonic() - began < 60


def test_what_is_no_handshake_is_refused_at_once(server):
    began = time.monotonic()
    for said in (b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n", b"\x00" * 4096):
        with socket.create_connection(address(server), timeout=30) as plain:
            plain.sendall(said)
            with contextlib.suppress(ConnectionResetError):
                while answer := plain.recv(4096):
                    assert b"HTTP" not in answer
    assert time.monotonic() - began < 5


def test_a_server_that_ends_completes_what_runs(default_model, authority, trust):
    with Server(*flags(authority)) as server:
        client = official(server, trust)
        asked = {"max_tokens": 200, "stream": True, "extra_body": {"ignore_eos": True}}
        stream = iter(ask(client, **asked))
        next(stream)
        idle = trust.wrap_socket(
            socket.create_connection(address(server)), server_hostname="localhost"
        )
        waiting = socket.create_connection(address(server))
        ended = []
        stopping = threading.Thread(target=lambda: ended.append(server.terminate()))
        stopping.start()
        assert len(list(stream)) >= 190
        stopping.join()
        assert ended == [0]
        idle.close()
        waiting.close()


def test_keys_are_asked_for(default_model, authority, trust, tmp_path):
    made = keys(tmp_path / "keys", alice="")
    with Server(*flags(authority), "--api-keys", str(tmp_path / "keys")) as server:
        assert ask(official(server, trust, made["alice"])).choices
        with pytest.raises(openai.AuthenticationError):
            ask(official(server, trust, "wrong"))
