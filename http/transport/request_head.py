"""Checks of a request's head before the app sees it, and the answer that closes a connection."""

from __future__ import annotations

import re
from collections.abc import Callable
from email.utils import formatdate
from http import HTTPStatus

import attrs
import h11
from werkzeug.datastructures import Headers

from greenroom.http.encoding.problem_documents import (
    ErrorShapes,
    no_shapes,
    problem_document,
    problem_headers,
)
from greenroom.http.guard.host_guard import host_name
from greenroom.http.transport.request_connection import new_request_id, request_id_headers
from greenroom.schemas.problems import Problem

OF_STRANGERS = (401, 429)  # Statuses of requests without a valid key, whose line tells where they come from
_ABSOLUTE = re.compile(rb"https?://([^/?#]*)[/?]", re.IGNORECASE)


def has_two_lengths(request: h11.Request) -> bool:
    """Return whether a request is chunked but also has a Content-Length (RFC 9112, 6.3).

    A proxy that trusts the other header would treat part of the body as another client's request.
    """
    names = {name for name, _ in request.headers}
    return b"transfer-encoding" in names and b"content-length" in names


def is_well_formed(request: h11.Request) -> bool:
    """Return whether a request's target and host are valid HTTP (RFC 9112, 3.2).

    An absolute target must name the same host as the Host header, since access control checks the header.
    """
    host = dict(request.headers).get(b"host", b"").strip()
    if host and host_name(host.decode("latin-1")) is None:
        return False
    target = request.target
    if target.startswith(b"/") or (target == b"*" and request.method == b"OPTIONS"):
        return True
    absolute = _ABSOLUTE.match(target)
    return absolute is not None and absolute.group(1).lower() == host.lower()


def client_of(request: h11.Request | None) -> tuple[str, Headers]:
    """Return the path and headers that identify a client's protocol; empty without a request."""
    if request is None:
        return "", Headers()
    fields = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers]
    return _path(request.target), Headers(fields)


def client_of_head(head: bytes) -> tuple[str, Headers]:
    """Return the path and headers in an unparsed and possibly incomplete head."""
    first, *lines = head.split(b"\r\n\r\n")[0].split(b"\r\n")
    words = first.split(b" ")
    shown = (text for line in lines if (text := line.decode("latin-1")).isprintable())
    fields = (text.partition(":") for text in shown)
    headers = Headers([(name, value.strip()) for name, colon, value in fields if colon])
    return _path(words[1] if len(words) > 1 else b""), headers


def _path(target: bytes) -> str:
    absolute = _ABSOLUTE.match(target)
    path = target[absolute.end() - 1 :] if absolute is not None else target
    return path.partition(b"?")[0].decode("latin-1")


RecordRefusal = Callable[[str, str, Headers, Problem], None]
"""Records a refusal, given its id, and the path and headers of the request as far as they are known."""


def no_record(_request_id: str, _path: str, _headers: Headers, _problem: Problem) -> None:
    """Record nothing."""


@attrs.frozen
class ClosingResponses:
    """Makes the error responses of requests that do not reach the app, and records each."""

    error_shapes: ErrorShapes = no_shapes
    record: RecordRefusal = no_record

    def refuse(self, problem: Problem, path: str, headers: Headers, with_body: bool = True) -> bytes:
        """Return a whole response, after which the connection closes, to a request with this path and these
        headers, as far as they are known.
        """
        request_id = new_request_id()
        self.record(request_id, path, headers, problem)
        body = problem_document(problem, request_id, self.error_shapes(path, headers))
        fields = {
            **problem_headers(problem),
            **request_id_headers(request_id),
            "content-length": str(len(body)),
            "date": formatdate(usegmt=True),
            "connection": "close",
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        line = f"HTTP/1.1 {problem.status} {HTTPStatus(problem.status).phrase}"
        return f"{line}\r\n{head}\r\n".encode() + (body if with_body else b"")


NO_RECORDS = ClosingResponses()  # Plain responses, of which no record is kept
