"""Records of the current request for the audit: its route, its end and its caller."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import attrs
from quart import has_request_context, request

from greenroom.actors.audit.audit_book import AuditBook
from greenroom.http.transport.request_connection import ANSWERED
from greenroom.schemas.problems import Problem
from greenroom.schemas.settings.caller import ANYBODY, Caller

STATE = "audited_request"
"""Key in the state of a request's scope."""
_READS = ("GET", "HEAD")
_REFUSED = 400
_LOCKED = 401


@attrs.define(eq=False)
class AuditedRequest:
    """Record of what the server sees of a request until its end."""

    protocol: str
    status: int | None = None
    error: str = ""
    model: str = ""

    def record_problem(self, problem: Problem) -> None:
        """Record the problem that ends the request."""
        self.error = self.error or problem.code


def begin_audit(book: AuditBook, protocol: str, *, on_socket: bool = False) -> None:
    """Open the row of the current request, which ends with its resources.

    Args:
        protocol: Name of its protocol; empty for a path of none.
        on_socket: True for a message of a WebSocket.
    """
    state = request.scope["state"]
    audited, ident = AuditedRequest(protocol), str(state["request_id"])
    state[STATE] = audited
    route = request.path if request.url_rule is None else request.url_rule.rule
    book.begin(ident, protocol, f"{'WS' if on_socket else request.method} {route}")
    # The scope outlives the context of the request, whose end may be a cancellation.
    state["resources"].callback(partial(_end, book, audited, ident, request.method, state))


def audit_body(book: AuditBook, parts: Sequence[bytes]) -> None:
    """Record the beginning of the current request's body."""
    book.add_body(str(request.scope["state"]["request_id"]), parts)


def audited_request() -> AuditedRequest | None:
    """Return the record of the current request; None if there is none, or no audit."""
    return cast("AuditedRequest | None", request.scope["state"].get(STATE)) if has_request_context() else None


def _end(book: AuditBook, audited: AuditedRequest, ident: str, method: str, state: dict[str, Any]) -> None:
    status, refused = audited.status, state.get("refused")
    if isinstance(refused, Problem):
        status, audited.error = refused.status, refused.code
    is_fine = status is not None and status < _REFUSED
    if is_fine and (method == "OPTIONS" or (not audited.protocol and method in _READS)):
        # Probes and scrapers ask every few seconds.
        book.drop(ident)
        return
    owner = "" if status == _LOCKED else cast("Caller", state.get("caller", ANYBODY)).owner
    was_answered = bool(state.get(ANSWERED)) or isinstance(refused, Problem)
    book.end(ident, status, audited.error, owner=owner, model=audited.model, cancelled=not was_answered)
