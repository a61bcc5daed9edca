"""The current request: its id, its client, and the resources released when it ends."""

from __future__ import annotations

from contextlib import ExitStack
from typing import cast

from quart import request

from greenroom.http.guard.client_name import client_name
from greenroom.schemas.stored import EVERYBODY


def request_id() -> str:
    """Return the id of the request in headers, logs and actor messages."""
    return str(request.scope["state"]["request_id"])


def answer_id(prefix: str) -> str:
    """Return an id for the response that contains the request's id, e.g. `chatcmpl-…`."""
    return f"{prefix}{request_id().removeprefix('req_')}"


def request_client() -> str:
    """Return a name for the client, for fairness between clients."""
    return client_name(request.headers, request.remote_addr)


def request_owner() -> str:
    """Return the owner of the objects that this request may store and read."""
    return EVERYBODY


def request_resources() -> ExitStack:
    """Return the resources that are closed when the response has ended or the client has disconnected."""
    return cast("ExitStack", request.scope["state"]["resources"])
