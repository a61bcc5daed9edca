"""A small HTTP server that speaks the part of the hub's API that downloads need, with faults on demand."""

from __future__ import annotations

import hashlib
import json
import threading
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal

import attrs

COMMIT = "0123456789abcdef0123456789abcdef01234567"
LARGE = (".safetensors", ".npz", ".bin", ".gguf")
"""Endings of the files that the hub keeps by SHA-256."""

_PIECE = 1 << 16


@attrs.define
class Fault:
    """A fault in the transfer of a file.

    Args:
        after: Position in the file, in bytes, at which the transfer ends.
        then: `cut` closes the connection, `hold` keeps it open without a byte until the server ends.
        times: Number of answers that it spoils.
    """

    after: int
    then: Literal["cut", "hold"] = "cut"
    times: int = 1


@attrs.frozen
class HubRequest:
    """A request that the hub has received; header names in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]


@attrs.define(eq=False)
class Hub:
    """A running hub. Files may be replaced, and faults set, at any time.

    Args:
        models: Models by id, each with its files' contents by name.
        faults: Faults by path of a file, `model/name`.
        served: Contents that are served in place of the listed ones, by `model/name`.
        gated: Models whose files are refused with 403 without the token `accepted`.
        private: Models that exist only for who has the token `accepted`.
        elsewhere: Address of another host to which files are redirected; None for none.
        ranges: Whether `Range` is honoured.
        pace: Seconds between two pieces of 64 KB of a file.
        statuses: Statuses to answer the next requests for files with, in order.
        stated: Bytes that the description of a model states for its weights, in place of those that are sent.
        held: Set as soon as a transfer is held.
    """

    models: dict[str, dict[str, bytes]]
    address: str = ""
    requests: list[HubRequest] = attrs.field(factory=list)
    faults: dict[str, Fault] = attrs.field(factory=dict)
    served: dict[str, bytes] = attrs.field(factory=dict)
    gated: set[str] = attrs.field(factory=set)
    private: set[str] = attrs.field(factory=set)
    elsewhere: str | None = None
    ranges: bool = True
    commit: str = COMMIT
    pace: float = 0.0
    statuses: list[int] = attrs.field(factory=list)
    stated: dict[str, int] = attrs.field(factory=dict)
    held: threading.Event = attrs.field(factory=threading.Event)
    ending: threading.Event = attrs.field(factory=threading.Event)

    @property
    def paths(self) -> list[str]:
        """The requested paths."""
        return [request.path for request in self.requests]

    def asked(self, name: str) -> list[str]:
        """Return the `Range` of each GET of a file, empty for the whole."""
        gets = (r for r in self.requests if r.method == "GET" and r.path.endswith(f"/{name}"))
        return [request.headers.get("range", "") for request in gets]

    def answer(self, path: str, query: str, token: str | None) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers and body of an answer of the API."""
        if path == "/api/models":
            words = urllib.parse.parse_qs(query).get("search", [""])[0].lower()
            found = [model for model in self.models if words in model.lower()]
            entries = [
                {"id": model, "modelId": model, "sha": self.commit, "downloads": 10 * n + 1, "likes": n}
                for n, model in enumerate(found)
            ]
            return _json(entries)
        for model, files in self.models.items():
            if path.startswith(f"/api/models/{model}"):
                if model in self.private and token != "accepted":
                    break
                if path.startswith(f"/api/models/{model}/tree/"):
                    return _json([_listed(name, content) for name, content in files.items()])
                siblings = [{"rfilename": name, "size": len(content)} for name, content in files.items()]
                for each in siblings:
                    if str(each["rfilename"]).endswith(LARGE):
                        each["size"] = self.stated.get(model, each["size"])
                about = {"id": model, "modelId": model, "sha": self.commit, "siblings": siblings, "tags": []}
                if path.rpartition("/revision/")[2] in ("", path, "main", "v1", self.commit):
                    return _json(about)
                return 404, {"X-Error-Code": "RevisionNotFound"}, b"{}"
        return 401, {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"}, b"{}"

    def find(self, path: str) -> tuple[str, str] | None:
        """Return model and name of a file by its path; None if there is none."""
        for model, files in self.models.items():
            prefix = f"/{model}/resolve/"
            name = urllib.parse.unquote(path.removeprefix(prefix).partition("/")[2])
            if path.startswith(prefix) and name in files:
                return model, name
        return None


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self) -> None:
        path, _, query = self.path.partition("?")
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.hub.requests.append(HubRequest(self.command, path, headers))
        token = headers.get("authorization", "").removeprefix("Bearer ") or None
        if (found := self.hub.find(path)) is None:
            self._send(*self.hub.answer(path, query, token))
        elif self.hub.statuses:
            self._send(self.hub.statuses.pop(0), {"Retry-After": "0"}, b"")
        elif found[0] in self.hub.gated and token != "accepted":
            self._send(403, {"X-Error-Code": "GatedRepo", "X-Error-Message": "gated"}, b"")
        elif self.hub.elsewhere is not None:
            self._send(302, {"Location": self.hub.elsewhere + path}, b"")
        else:
            self._send_file(*found, headers.get("range"))

    def _send(self, status: int, headers: Mapping[str, str], content: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def _send_file(self, model: str, name: str, wanted: str | None) -> None:
        listed = self.hub.models[model][name]
        content = self.hub.served.get(f"{model}/{name}", listed)
        start = 0
        if wanted is not None and self.hub.ranges:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("ETag", f'"{digest_of(name, listed)}"')
        self.send_header("X-Repo-Commit", self.hub.commit)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        if self.command == "GET":
            self._send_body(f"{model}/{name}", content, start)

    def _send_body(self, file: str, content: bytes, start: int) -> None:
        fault = self.hub.faults.get(file)
        spoiled = fault is not None and fault.times > 0
        end = min(fault.after, len(content)) if fault is not None and spoiled else len(content)
        try:
            for place in range(start, end, _PIECE):
                self.wfile.write(content[place : min(place + _PIECE, end)])
                if self.hub.pace:
                    time.sleep(self.hub.pace)
            if fault is not None and spoiled:
                fault.times -= 1
                self.close_connection = True
                if fault.then == "hold":
                    self.hub.held.set()
                    self.hub.ending.wait()
        except OSError:  # the client has left
            self.close_connection = True


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, *_: object) -> None:
        pass


@contextmanager
def open_hub(models: Mapping[str, Mapping[str, bytes]]) -> Iterator[Hub]:
    """Run a hub with models (id → file name → content)."""
    hub = Hub({model: dict(files) for model, files in models.items()})
    server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    hub.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield hub
    finally:
        hub.ending.set()
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def hub_server(models: Mapping[str, Mapping[str, bytes]]) -> Iterator[tuple[str, list[HubRequest]]]:
    """Run a hub with models; yield its address and the list of its requests."""
    with open_hub(models) as hub:
        yield hub.address, hub.requests


def digest_of(name: str, content: bytes) -> str:
    """Return the hash by which the hub names a file's content."""
    if name.endswith(LARGE):
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def _listed(name: str, content: bytes) -> dict[str, object]:
    digest = digest_of(name, content)
    entry = {"type": "file", "path": name, "size": len(content), "oid": digest}
    if name.endswith(LARGE):
        entry |= {"oid": "0" * 40, "lfs": {"oid": digest, "size": len(content), "pointerSize": 134}}
    return entry


def _json(value: object) -> tuple[int, dict[str, str], bytes]:
    return 200, {"Content-Type": "application/json"}, json.dumps(value).encode()
