"""The current request: its id, its client, and the resources released when it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import cast

import attrs
from quart import has_request_context, request

from greenroom.http.guard.client_name import client_name
from greenroom.http.guard.keys.key_ring import KeyRing
from greenroom.schemas.events.events import Admitted
from greenroom.schemas.messages.requests import ChatInput, InferenceRequest
from greenroom.schemas.problems import Problem, ProblemError
from greenroom.schemas.settings.caller import ANYBODY, Caller, is_allowed
from greenroom.schemas.stored import EVERYBODY

_OF_ANY_OWNER = ("GET", "HEAD", "DELETE")
NOTICE = "x-greenroom-notice"
"""Header with a sentence about a wish of the client that the model cannot fulfil."""


def request_id() -> str:
    """Return the id of the request in headers, logs and actor messages."""
    return str(request.scope["state"]["request_id"])


def answer_id(prefix: str) -> str:
    """Return an id for the response that contains the request's id, e.g. `chatcmpl-…`."""
    return f"{prefix}{request_id().removeprefix('req_')}"


def request_client() -> str:
    """Return a name for the client, for fairness between clients: a checked key is a client of its own."""
    if (known := caller()).has_key:
        return known.owner
    return client_name(request.headers, request.remote_addr)


def caller() -> Caller:
    """Return the caller of the request, over HTTP or on a WebSocket."""
    return cast("Caller", request.scope["state"].get("caller", ANYBODY))


def attend_caller(end: Callable[[], None]) -> None:
    """Call `end`, which must not block, if the key of this request is revoked or expires before its end."""
    ring: KeyRing | None = request.scope["state"].get("ring")
    if ring is not None:
        request_resources().callback(ring.attend(caller(), end))


def request_owner() -> str:
    """Return the owner of the objects that this request may store and read.

    Admin keys are one owner, that of what was stored before there were keys. They may list, read and delete
    for any other key by the query parameter `owner`.
    """
    known = caller()
    if not known.admin:
        return known.owner
    return request.args.get("owner", EVERYBODY) if request.method in _OF_ANY_OWNER else EVERYBODY


def for_caller(asked: InferenceRequest, *, isolates: bool = False) -> InferenceRequest:
    """Return a request with the models, the priority and the cached prefixes of the caller's key.

    Args:
        isolates: True if keys share no computed prefixes.

    Raises:
        ProblemError: 403 if the request declares a tool that the key does not allow.
    """
    known = caller()
    if known == ANYBODY:
        return asked
    declared = asked.input.tools if isinstance(asked.input, ChatInput) else ()
    refused = next((tool.name for tool in declared if not is_allowed(known.tools, tool.name)), None)
    if refused is not None:
        detail = f"`tools` declares '{refused[:100]}', which this API key does not allow."
        raise ProblemError(Problem(403, "tool_not_allowed", detail, "tools"))
    salt = known.owner if isolates else ""
    rights = attrs.evolve(asked, allowed=known.models, may_download=known.may_download)
    return attrs.evolve(rights, key_priority=known.priority, cache_salt=salt)


def send_notice(events: Iterable[object]) -> None:
    """Put the notice in the events, if there is one, into the response's headers."""
    for event in events:
        if isinstance(event, Admitted) and event.notice:
            add_notice(event.notice)


def add_notice(notice: str) -> None:
    """Put a sentence for people into the response's headers, once; without a request nobody is told."""
    if not has_request_context():
        return
    state = request.scope["state"]
    state["notice"] = "; ".join(dict.fromkeys((*state.get("notice", "").split("; "), notice))).lstrip("; ")


def notice_headers() -> dict[str, str]:
    """Return the header with the notice of this request, if it has one."""
    notice = request.scope["state"].get("notice")
    return {NOTICE: notice} if notice else {}


def request_resources() -> ExitStack:
    """Return the resources that are closed when the response has ended or the client has disconnected."""
    return cast("ExitStack", request.scope["state"]["resources"])
