"""MCP servers in a response request: the loop of their tools."""

from __future__ import annotations

from typing import Any

import attrs
from quart import Blueprint, Response

from greenroom.actors.requests.prompt_queries import render_prompt
from greenroom.actors.tools.turn import answers_to
from greenroom.http.answering.http_responses import json_response
from greenroom.http.answering.protocols import described
from greenroom.http.answering.route_services import RouteServices
from greenroom.http.answering.server_tools import ServerFinder, loop_of, tool_names
from greenroom.http.responses.request_parser import ParsedResponseRequest, RequestWithHistory
from greenroom.schemas.messages.messages import Message, TextPart
from greenroom.schemas.messages.requests import ChatInput
from greenroom.schemas.problems import ProblemError, invalid
from greenroom.schemas.protocols.tools_protocol import ToolLoop, ToolSource
from greenroom.schemas.settings.tool_servers import ALWAYS, NEVER
from greenroom.schemas.wire.responses_items import McpTool

_MOST_APPROVED = 32  # Limit on the calls that one request approves, which run at once


def mcp_server_routes(services: RouteServices) -> Blueprint:
    """Return the blueprint of the route that lists MCP servers."""
    routes = Blueprint("mcp servers", __name__)

    @routes.get("/v1/mcp_servers")
    @described("List the MCP servers of the settings whose tools this caller may use")
    async def servers() -> Response:
        usable = ServerFinder(services).usable().items()
        data = [{"id": name, "object": "mcp_server", "default": is_default} for name, is_default in usable]
        return json_response({"object": "list", "data": data})

    return routes


async def response_loop(
    services: RouteServices, parsed: ParsedResponseRequest, complete: RequestWithHistory
) -> ToolLoop | None:
    """Return the loop of a request's MCP tools; None if it has none. Raises ProblemError: 400 that names the
    field, or what an approval refers to; as the model would, if the calls that it approves were for nothing.
    """
    finder = ServerFinder(services)
    sources = [_source(finder, tool, f"tools[{index}]") for index, tool in parsed.mcp]
    labels = {source.label for source in sources}
    for call in complete.approved:
        if call.server not in labels:
            detail = f"The approved call {call.id!r} needs the MCP server {call.server[:80]!r} in `tools`."
            raise invalid(detail, "tools")
    if len(complete.approved) > _MOST_APPROVED:
        raise invalid(f"`input` approves more than {_MOST_APPROVED} calls at once.", "input")
    most = parsed.max_tool_calls
    if sources and most is not None and most < 1:
        raise invalid("`max_tool_calls` must be at least 1.", "max_tool_calls")
    for label, _ in parsed.chosen_mcp:
        if label not in labels:
            detail = f"`tool_choice` names the MCP server {label[:80]!r}, which is not in `tools`."
            raise invalid(detail, "tool_choice")
    limits: dict[str, Any] = {"max_calls": most, "chosen": parsed.chosen_mcp}
    loop = loop_of(sources, "tools", approved=complete.approved, listed=complete.listed, asks=True, **limits)
    if complete.approved:
        await _check_prompt(services, complete)
    return loop


async def _check_prompt(services: RouteServices, complete: RequestWithHistory) -> None:
    """Refuse a request whose prompt cannot be made, before the calls that it approves are made. Raises
    ProblemError: as the model would; nothing is known of remote ones.
    """
    request = await services.with_files(complete.request)
    assert isinstance(request.input, ChatInput)
    unknown = {call.id: Message("tool", (TextPart("…"),), tool_call_id=call.id) for call in complete.approved}
    chat = attrs.evolve(request.input, messages=answers_to(request.input.messages, unknown))
    try:
        await render_prompt(services.refs.pool, attrs.evolve(request, input=chat))
    except ProblemError as error:
        if error.problem.code != "remote_prompt":
            raise


def _source(finder: ServerFinder, tool: McpTool, field: str) -> ToolSource:
    allowed = tool_names(tool.allowed_tools, f"{field}.allowed_tools")
    approval, exempt = _approval(tool.require_approval, f"{field}.require_approval")
    limits: dict[str, Any] = {"allowed": allowed, "approval": approval, "exempt": exempt}
    if tool.server_url is None:
        if tool.headers or tool.authorization:
            detail = "have a place only beside `server_url`: a server of the settings has its own."
            raise invalid(f"`{field}`: `headers` and `authorization` {detail}", field)
        return finder.of_settings(tool.server_label, f"{field}.server_label", **limits)
    headers = dict(tool.headers or {})
    if tool.authorization is not None:
        headers["Authorization"] = f"Bearer {tool.authorization}"
    limits["approval"] = (ALWAYS,) if approval is None else approval
    return finder.of_address(tool.server_label, tool.server_url, f"{field}.server_url", headers, **limits)


def _approval(value: Any, field: str) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """Return the tools whose calls need an approval, and those that need none in spite of that."""
    if value in (None, ALWAYS, NEVER):
        return (None if value is None else (value,)), ()
    if not isinstance(value, dict) or value.keys() - {ALWAYS, NEVER}:
        raise invalid(f"`{field}` must be 'always', 'never', or an object with these.", field)
    never = tool_names(value.get(NEVER), f"{field}.{NEVER}")
    always = tool_names(value.get(ALWAYS), f"{field}.{ALWAYS}")
    return ((ALWAYS,), never or ()) if always is None else (always, ())
