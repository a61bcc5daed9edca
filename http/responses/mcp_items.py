"""Items of MCP tools in a conversation's history: lists, calls, and requests for approvals."""

from __future__ import annotations

from typing import Any

from greenroom.schemas.events.tool_events import ServerCall
from greenroom.schemas.messages.messages import JsonObject, Message, TextPart
from greenroom.schemas.problems import Problem, ProblemError, invalid, missing

_MEMBERS = ("id", "server_label", "name", "arguments")
_NOT_ANSWERED = "The user has not approved this call."


class ServerCalls:
    """The calls of MCP tools in a conversation that wait for an approval, or for their results.

    Attributes:
        listed: Labels of the servers whose lists are shown.
        approved: Calls by id that the user has approved, and that have not been made.
    """

    def __init__(self) -> None:
        self.listed: set[str] = set()
        self.approved: dict[str, ServerCall] = {}
        self._asked: dict[str, ServerCall] = {}
        self._open: set[str] = set()

    def list(self, item: JsonObject) -> None:
        """Record a list of tools."""
        if item.get("error") is None:
            self.listed.add(str(item.get("server_label")))

    def ask(self, item: JsonObject, field: str) -> ServerCall:
        """Return the call for which an item asks."""
        for name in _MEMBERS:
            if not isinstance(item.get(name), str) or not item[name]:
                raise missing(f"{field}.{name}")
        call = ServerCall(*(item[name] for name in (*_MEMBERS, "id")))
        self._asked[call.id] = call
        self._open.add(call.id)
        return call

    def answer(self, item: JsonObject, field: str) -> tuple[str, str] | None:
        """Record an approval; return the id and the result of a call that the user has refused."""
        ident, approves, reason = (item.get(name) for name in ("approval_request_id", "approve", "reason"))
        name = f"{field}.approval_request_id"
        if not isinstance(ident, str):
            raise missing(name)
        if not isinstance(approves, bool):
            raise invalid(f"`{field}.approve` must be true or false.", f"{field}.approve", "invalid_type")
        if ident not in self._asked:
            detail = f"`{name}` is {ident[:80]!r}, but no earlier item asks for that approval."
            raise ProblemError(Problem(404, "item_not_found", detail, name))
        if ident not in self._open:
            raise invalid(f"`{name}` is {ident[:80]!r}, which was answered before.", name)
        self._open.discard(ident)
        if approves:
            self.approved[ident] = self._asked[ident]
            return None
        why = f": {reason}" if isinstance(reason, str) and reason else "."
        return ident, f"The user has refused this call{why}"

    def made(self, item: JsonObject) -> str | None:
        """Return the id under which the call of an item was asked for; None if it needed no approval."""
        ident: Any = item.get("approval_request_id")
        if ident not in self._asked:
            return None
        self.approved.pop(ident, None)
        self._open.discard(ident)
        return str(ident)

    def unanswered(self) -> dict[str, Message]:
        """Return a result for each call that waits for an approval that does not come."""
        told = (TextPart(_NOT_ANSWERED),)
        return {ident: Message("tool", told, tool_call_id=ident) for ident in sorted(self._open)}
