"""Records of the current request for the log and the audit: its model, its end and its caller."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import attrs
from quart import has_request_context, request

from greenroom.actors.audit.audit_book import MAX_TEXT, AuditBook
from greenroom.http.transport.client_ids import LOG_FIELDS
from greenroom.http.transport.request_connection import ANSWERED
from greenroom.schemas.messages.messages import JsonObject
from greenroom.schemas.problems import Problem
from greenroom.schemas.settings.caller import ANYBODY, Caller

STATE = "audited_request"
"""Key in the state of a request's scope."""
_READS = ("GET", "HEAD")
_REFUSED = 400
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
    """Return the record of the current request; None if there is none."""
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
