"""Stands between a client and the server, and keeps what both said."""

import json
import threading
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx2


@dataclass
class Exchange:
    """One request and its answer."""

    path: str
    body: bytes
    status: int
    answer: bytes

    @property
    def request(self) -> dict:
        return json.loads(self.body)

    @property
    def verdict(self) -> dict:
        """The verdict, of a whole answer or of a stream's last event that has one."""
        text = self.answer.decode()
        events = [line[5:] for line in text.splitlines() if line.startswith("data:")] or [text]
        parsed = [json.loads(event) for event in events if event.strip() != "[DONE]"]
        return [one["refrain"]["verdict"] for one in parsed if one.get("refrain")][-1]


class Recorder:
    """Passes everything on to `url`; a context manager."""

    def __init__(self, url: str):
        self.exchanges: list[Exchange] = []
        recorder = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                self._pass_on()

            def do_POST(self):
                self._pass_on()

            def _pass_on(self):
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                dropped = ("host", "content-length", "connection", "accept-encoding")
                headers = {k: v for k, v in self.headers.items() if k.lower() not in dropped}
                answer = b""
                with httpx2.stream(
                    self.command, url + self.path, content=body, headers=headers, timeout=120
                ) as response:
                    self.send_response(response.status_code)
                    kind = response.headers.get("content-type", "application/json")
                    self.send_header("content-type", kind)
                    self.send_header("connection", "close")
                    self.end_headers()
                    for piece in response.iter_raw():
                        answer += piece
                        # Some clients leave when they have seen the end mark.
                        with suppress(ConnectionError):
                            self.wfile.write(piece)
                            self.wfile.flush()
                status = response.status_code
                recorder.exchanges.append(Exchange(self.path, body, status, answer))

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)

    def __enter__(self) -> "Recorder":
        self.thread.start()
        return self

    def __exit__(self, *_) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()
