"""A server with known faults that the attack must find; run as a process, with a port as argument."""

from __future__ import annotations

import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

STALL = 1.0
_stalled = threading.Lock()


class FaultyServer(BaseHTTPRequestHandler):
    """A server that streams words, and stalls every stream while it answers a request for 16 choices."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(b"{}")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if body.get("n") == 16:
            with _stalled:
                time.sleep(STALL)
        if not body.get("stream"):
            self._answer(b"{}")
            return
        self.send_response(200)
        self.send_header("connection", "close")
        self.end_headers()
        for _ in range(int(body.get("max_tokens", 10))):
            with _stalled:
                self.wfile.write(b'data: {"word": "calm"}\n\n')
            time.sleep(0.005)
        self.wfile.write(b"data: [DONE]\n\n")

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse with a 400. A 501 would be a second fault, and found first."""
        super().send_error(min(code, 400), message, explain)

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


class QuietServer(ThreadingHTTPServer):
    """A server that logs nothing when a client leaves."""

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore errors, since hostile clients cause them."""


if __name__ == "__main__":
    QuietServer(("127.0.0.1", int(sys.argv[1])), FaultyServer).serve_forever()
