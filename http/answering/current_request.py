"""The current request: its id, its client, and the resources released when it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, cast

import attrs
from quart import Response, has_request_context, request

from greenroom.actors.core.ref import Ref, ask_actor
from greenroom.actors.records.audit import MAX_TEXT, AuditBook
from greenroom.actors.records.inspector import Inspector
from greenroom.actors.records.tracing import place_in_trace
from greenroom.http.guard.host_guard import client_name
from greenroom.http.guard.keys import KeyRing
from greenroom.http.guard.local_programs import PEER, Peer
from greenroom.http.transport.request_connection import ANSWERED, LOG_FIELDS
from greenroom.schemas.events.events import Admitted
from greenroom.schemas.messages.messages import JsonObject
from greenroom.schemas.messages.requests import ChatInput, InferenceRequest
from greenroom.schemas.models.model_description import ModelDescription
from greenroom.schemas.problems import Problem, ProblemError, model_not_found
from greenroom.schemas.protocols.pool_protocol import DescribeModel, ModelDescriptions, PoolMessage
from greenroom.schemas.settings.caller import ANYBODY, Caller, is_allowed
from greenroom.schemas.settings.remotes import HOP
from greenroom.schemas.stored import EVERYBODY

_OF_ANY_OWNER = ("GET", "HEAD", "DELETE")
BACKEND = "x-greenroom-backend"
"""Header with the name of the remote that answers, or `local`."""
NOTICE = "x-greenroom-notice"
"""Header with a sentence about a wish of the client that the model cannot fulfil."""


def request_id() -> str:
    return str(request.scope["state"]["request_id"])


def answer_id(prefix: str) -> str:
    """Return an id for the response that contains the request's id, e.g. `chatcmpl-…`."""
    return f"{prefix}{request_id().removeprefix('req_')}"


def request_client() -> str:
    """Return a name for the client, for fairness between clients: a checked key is a client of its own."""
    if (known := caller()).has_key:
        return known.owner
    peer: Peer | None = request.scope["state"].get(PEER)
    return client_name(request.headers, request.remote_addr, None if peer is None else peer.number)


def tell_choices(choices: int) -> None:
    """Tell how many answers the current request wants."""
    if (peer := request.scope["state"].get(PEER)) is not None:
        peer.choices = choices


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
    known, ids = caller(), request.scope["state"].get("client_ids")
    if HOP in request.headers:
        asked = attrs.evolve(asked, stays="the request has come from another Greenroom")
    elif known.local_only:
        asked = attrs.evolve(asked, stays="its API key keeps requests on this machine")
    if (place := place_in_trace(None if ids is None else ids.trace)) is not None:
        asked = attrs.evolve(asked, trace=place)
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


def tell_backend(backend: str) -> None:
    """Put the name of the backend that answers into the response's headers, and into the log."""
    if has_request_context():
        request.scope["state"]["backend"] = backend


def notice_headers() -> dict[str, str]:
    """Return the headers with the notice of this request and with its backend, as far as it has them."""
    state = request.scope["state"]
    told = {NOTICE: state.get("notice"), BACKEND: state.get("backend")}
    return {name: value for name, value in told.items() if value}


def request_resources() -> ExitStack:
    """Return the resources that are closed when the response has ended or the client has disconnected."""
    return cast("ExitStack", request.scope["state"]["resources"])


_REFUSED = 400


def inspect_body(inspector: Inspector, parts: Sequence[bytes]) -> None:
    """Record the body of the current request, or its beginning."""
    size = sum(map(len, parts))
    begun, room = list[bytes](), inspector.share
    for part in parts:
        begun.append(bytes(part[:room]))
        room -= len(begun[-1])
    inspector.begin(request_id(), f"{request.method} {request.path[:200]}", b"".join(begun), size)
    request_resources().callback(partial(inspector.close, request_id()))


async def inspect_response(inspector: Inspector, response: Response) -> None:
    """Record the status of the current response, and its body if the request was refused."""
    failure = b""
    if response.status_code >= _REFUSED:
        failure = await response.get_data(as_text=False)
    inspector.answered(request_id(), response.status_code, failure)


async def describe_models(pool: Ref[PoolMessage], name: str | None = None) -> tuple[ModelDescription, ...]:
    """Return the description of a model; without a name, those of all that the caller may use. Raises
    ProblemError: 404 for a model that does not exist or may not be used.
    """
    patterns = caller().models
    try:
        found = (await ask_actor(pool, DescribeModel(name), ModelDescriptions)).models
    except ProblemError as error:
        if patterns and name is not None and error.problem.status == 404:
            raise ProblemError(model_not_found(name)) from None  # the problem names models like it
        raise
    if not patterns:
        return found  # the same object as before while nothing has changed, so that its list is kept
    allowed = tuple(each for each in found if is_allowed(patterns, each.model or each.id))
    if name is not None and not allowed:
        raise ProblemError(model_not_found(name))
    return allowed


STATE = "audited_request"  # Key in the state of a request's scope
_READS = ("GET", "HEAD")
_LOCKED = 401
_SWITCHED_OFF = ("inspector_off", "audit_off")
"""Problems by which the pages learn what the operator has not switched on."""


@attrs.define(eq=False)
class AuditedRequest:
    """Record of what the server sees of a request until its end."""

    protocol: str
    status: int | None = None
    error: str = ""
    model: str = ""

    def record_problem(self, problem: Problem) -> None:
        self.error = self.error or problem.code

    def record_body(self, body: JsonObject) -> None:
        """Record the model that a body names, for requests that are refused before it is looked up."""
        if isinstance(named := body.get("model"), str):
            self.model = named[:MAX_TEXT]


def begin_record(book: AuditBook | None, protocol: str, *, on_socket: bool = False) -> None:
    """Begin the record of the current request, and its row of the audit, which ends with its resources.

    Args:
        book: Book of the audit; None if there is no audit.
        protocol: Name of its protocol; empty for a path of none.
        on_socket: True for a message of a WebSocket.
    """
    state = request.scope["state"]
    audited, ident = AuditedRequest(protocol), str(state["request_id"])
    state[STATE], state[LOG_FIELDS] = audited, partial(_log_fields, audited, state)
    if book is None:
        return
    route = request.path if request.url_rule is None else request.url_rule.rule
    book.begin(ident, protocol, f"{'WS' if on_socket else request.method} {route}")
    # The scope outlives the context of the request, whose end may be a cancellation.
    is_read, is_pages = request.method in _READS, request.headers.get("Sec-Fetch-Site") == "same-origin"
    quiet = request.method == "OPTIONS" or (is_read and (is_pages or not protocol))
    state["resources"].callback(partial(_end, book, audited, ident, state, quiet=quiet))


def audit_body(book: AuditBook, parts: Sequence[bytes]) -> None:
    book.add_body(str(request.scope["state"]["request_id"]), parts)


def audited_request() -> AuditedRequest | None:
    return cast("AuditedRequest | None", request.scope["state"].get(STATE)) if has_request_context() else None


def _log_fields(audited: AuditedRequest, state: dict[str, Any]) -> dict[str, Any]:
    refused: Problem | None = state.get("refused")
    caller = cast("Caller", state.get("caller", ANYBODY))
    fields = {
        "status": audited.status if refused is None else refused.status,
        "problem": audited.error if refused is None else refused.code,
        "model": audited.model,
        "key": caller.name,
    }
    return {name: value for name, value in fields.items() if value}


def _end(book: AuditBook, audited: AuditedRequest, ident: str, state: dict[str, Any], *, quiet: bool) -> None:
    status, refused = audited.status, state.get("refused")
    if isinstance(refused, Problem):
        status, audited.error = refused.status, refused.code
    if quiet and status is not None and (status < _REFUSED or audited.error in _SWITCHED_OFF):
        # Probes, scrapers and the server's own pages ask every few seconds.
        book.drop(ident)
        return
    owner = "" if status == _LOCKED else cast("Caller", state.get("caller", ANYBODY)).owner
    was_answered = bool(state.get(ANSWERED)) or isinstance(refused, Problem)
    book.end(ident, status, audited.error, owner=owner, model=audited.model, cancelled=not was_answered)
