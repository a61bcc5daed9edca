"""The request that is being answered: its id, and what is released when it ends."""

from __future__ import annotations

from contextlib import ExitStack
from typing import cast

from quart import request


def request_id() -> str:
    """Return the id that the client, the logs and the actors call the request by."""
    return str(request.scope["state"]["request_id"])


def answer_id(prefix: str) -> str:
    """Return an id for its answer, in which the request's can be recognised."""
    return f"{prefix}-{request_id().removeprefix('req_')}"


def request_resources() -> ExitStack:
    """Return what the request holds: closed when its answer has ended or its client has left."""
    return cast("ExitStack", request.scope["state"]["resources"])
