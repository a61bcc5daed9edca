"""Requests as bytes, of any size."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import attrs

from greenroom.tests.attack.requests import files
from greenroom.tests.attack.requests.grammars import GRAMMARS, PATTERNS
from greenroom.tests.attack.requests.json_pieces import Bytes, encode
from greenroom.tests.attack.requests.schemas import SCHEMAS
from greenroom.tests.attack.requests.steps import Call, FormCall
from greenroom.tests.support.hostile.uploads import Upload, form

MAKERS = {**SCHEMAS, **GRAMMARS, **PATTERNS, **files.ENCODED}


def head(length: int | None) -> bytes:
    """Return the head of a chat request; without a length, its body is chunked."""
    size = "transfer-encoding: chunked" if length is None else f"content-length: {length}"
    fields = ("host: localhost", "content-type: application/json", size)
    return "\r\n".join(("POST /v1/chat/completions HTTP/1.1", *fields, "", "")).encode()


def post(body: dict[str, Any]) -> bytes:
    """Return a chat request."""
    data = json.dumps(body).encode()
    return head(len(data)) + data


def as_bytes(step: Call | FormCall) -> Iterable[bytes]:
    """Return the pieces of a request; they can be sent several times."""
    return [_request(step)] if isinstance(step, Call) else FormBytes(step)


def _request(step: Call) -> bytes:
    body = step.body.whole() if isinstance(step.body, Bytes) else encode(step.body, MAKERS).encode()
    fields = {"content-type": "application/json", "content-length": str(len(body)), **dict(step.headers)}
    return request_head(step.method, step.path, fields) + body


@attrs.frozen
class FormBytes:
    """A multipart request, generated each time that it is sent."""

    step: FormCall

    def __iter__(self) -> Iterator[bytes]:
        upload = _upload(self.step)
        yield request_head("POST", self.step.path, upload.headers)
        yield from upload.pieces()


def _upload(step: FormCall) -> Upload:
    if step.file == "1 GB":
        return Upload(dict(step.fields), name=step.name)
    return form(files.content(step.file), step.name, **dict(step.fields))


def request_head(method: str, path: str, headers: dict[str, str]) -> bytes:
    """Return the head of a request that closes its connection."""
    fields = {"host": "localhost", "connection": "close", **headers}
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode()
