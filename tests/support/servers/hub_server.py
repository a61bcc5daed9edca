"""A small HTTP server with the part of the hub's API that downloads need."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@contextmanager
def hub_server(models: Mapping[str, Mapping[str, bytes]]) -> Iterator[tuple[str, list[str]]]:
    """Serve models (id → file name → content); yield the address and the list of requested paths."""
    requested_paths: list[str] = []

    class Hub(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer(body=True)

        def do_HEAD(self) -> None:
            self._answer(body=False)

        def log_message(self, *_: object) -> None:
            pass

        def _answer(self, body: bool) -> None:
            path = self.path.partition("?")[0]
            requested_paths.append(path)
            status, headers, content = answer(models, path)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if body:
                self.wfile.write(content)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", requested_paths
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def answer(models: Mapping[str, Mapping[str, bytes]], path: str) -> tuple[int, dict[str, str], bytes]:
    """Return status, headers and body of one response."""
    for model, files in models.items():
        if path.startswith(f"/api/models/{model}/tree/"):
            return _json(
                [{"type": "file", "path": n, "size": len(c), "oid": _etag(c)} for n, c in files.items()]
            )
        if path.startswith(f"/api/models/{model}"):
            siblings = [{"rfilename": name, "size": len(content)} for name, content in files.items()]
            return _json({"id": model, "modelId": model, "sha": COMMIT, "siblings": siblings, "tags": []})
        prefix = f"/{model}/resolve/"
        if path.startswith(prefix):
            name = path.removeprefix(prefix).partition("/")[2]
            if name in files:
                content = files[name]
                return 200, {"ETag": f'"{_etag(content)}"', "X-Repo-Commit": COMMIT}, content
            return 404, {"X-Error-Code": "EntryNotFound"}, b""
    return 404, {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"}, b"{}"


def _json(value: object) -> tuple[int, dict[str, str], bytes]:
    return 200, {"Content-Type": "application/json"}, json.dumps(value).encode()


def _etag(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()
