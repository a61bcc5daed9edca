"""Events of a streamed response for what this server does itself: lists, calls and requests for approvals."""

from __future__ import annotations

from typing import Any

from greenroom.http.responses.response_object import approval_item, list_item, mcp_call_item
from greenroom.schemas.events.tool_events import ApprovalWanted, ServerCall, ToolResult, ToolsListed

Event = tuple[str, dict[str, Any]]
"""Type of an event, and its members without type and number."""


def own_tool_events(
    event: ToolsListed | ServerCall | ToolResult | ApprovalWanted,
    response_id: str,
    index: int,
    calls: dict[str, tuple[int, ServerCall]],
) -> tuple[list[Event], int, dict[str, Any]]:
    """Return the events for what this server does itself, and the index and the state of their item.

    Args:
        index: Index of the next item.
        calls: Calls that wait for their results, with their items' indexes; it is kept up to date.
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
