"""Items and events of MCP tools: lists, calls, and requests for approvals."""

from __future__ import annotations

from typing import Any

from greenroom.http.responses.response_object import approval_item, list_item, mcp_call_item
from greenroom.schemas.events.result_events import ApprovalWanted, ServerCall, ToolResult, ToolsListed
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
        ident = item["call_id"] if isinstance(item.get("call_id"), str) else item["id"]
        call = ServerCall(ident, item["server_label"], item["name"], item["arguments"], ident)
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
        if not isinstance(ident, str) or ident not in self._asked:
            return None
        self.approved.pop(ident, None)
        self._open.discard(ident)
        return ident

    def unanswered(self) -> dict[str, Message]:
        """Return a result for each call that waits for an approval that does not come."""
        told = (TextPart(_NOT_ANSWERED),)
        return {ident: Message("tool", told, tool_call_id=ident) for ident in sorted(self._open)}


Event = tuple[str, dict[str, Any]]
"""Type of an event, and its members without type and number."""


def own_tool_events(
    event: ToolsListed | ServerCall | ToolResult | ApprovalWanted,
    response_id: str,
    index: int,
    calls: dict[str, tuple[int, ServerCall]],
) -> tuple[list[Event], int, dict[str, Any]]:
    """Return the events for what this server does itself, and the index and the state of their item. `calls`:
    calls that wait for their results, with their items' indexes; it is kept up to date.
    """
    match event:
        case ToolsListed():
            item = list_item(event, response_id, index)
            place = {"item_id": item["id"], "output_index": index}
            kind = "response.mcp_list_tools"
            end = "failed" if event.error else "completed"
            opened = {**item, "tools": [], "error": None}
            steps = [*_opened(opened, index), (f"{kind}.in_progress", place), (f"{kind}.{end}", place)]
        case ServerCall():
            calls[event.id] = index, event
            item = mcp_call_item(event, None, response_id, index)
            place = {"item_id": item["id"], "output_index": index}
            arguments, kind = event.arguments, "response.mcp_call"
            steps = [
                *_opened({**item, "arguments": ""}, index),
                (f"{kind}.in_progress", place),
                (f"{kind}_arguments.delta", {**place, "delta": arguments}),
                (f"{kind}_arguments.done", {**place, "arguments": arguments}),
            ]
            return steps, index, item
        case ToolResult():
            index, call = calls.pop(event.id)
            item = mcp_call_item(call, event, response_id, index)
            place = {"item_id": item["id"], "output_index": index}
            steps = [(f"response.mcp_call.{'failed' if event.failed else 'completed'}", place)]
        case ApprovalWanted():
            item = approval_item(event)
            steps = _opened(item, index)
    return [*steps, ("response.output_item.done", {"output_index": index, "item": item})], index, item


def _opened(item: dict[str, Any], index: int) -> list[Event]:
    return [("response.output_item.added", {"output_index": index, "item": item})]
