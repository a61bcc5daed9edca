"""MCP servers in a messages request: the loop of their tools."""

from __future__ import annotations

from typing import Any

from greenroom.http.answering.server_tools import ServerFinder, loop_of
from greenroom.http.anthropic.conversation import TOOLSET
from greenroom.schemas.messages.messages import JsonObject
from greenroom.schemas.problems import invalid, missing
from greenroom.schemas.protocols.tools_protocol import ToolLoop, ToolSource
from greenroom.schemas.wire.anthropic import McpServerParam, MessagesRequest, ToolParam


def message_loop(finder: ServerFinder, wire: MessagesRequest) -> ToolLoop | None:
    """Return the loop of a request's MCP tools; None if it has none.

    A toolset names a server of `mcp_servers`, or one of the settings. A server without a toolset offers what
    its `tool_configuration` says, as in the first version of this beta.

    Raises:
        ProblemError: 400 that names the field.
    """
    if wire.tool_choice is not None and wire.tool_choice.type == "none":
        return None
    servers = {server.name: (index, server) for index, server in enumerate(wire.mcp_servers or ())}
    sources: list[ToolSource] = []
    toolsets = [(i, tool) for i, tool in enumerate(wire.tools or ()) if tool.type == TOOLSET]
    for index, toolset in toolsets:
        field = f"tools[{index}].mcp_server_name"
        if not toolset.mcp_server_name:
            raise missing(field)
        found = servers.pop(toolset.mcp_server_name, None)
        limits = _limits(toolset)
        if found is None:
            sources.append(finder.of_settings(toolset.mcp_server_name, field, **limits))
        else:
            sources.append(_source(finder, found[1], f"mcp_servers[{found[0]}]", limits))
    for index, server in servers.values():
        settings = server.tool_configuration or {}
        if settings.get("enabled") is not False:
            allowed = settings.get("allowed_tools")
            names = None if not isinstance(allowed, list) else tuple(map(str, allowed))
            sources.append(_source(finder, server, f"mcp_servers[{index}]", {"allowed": names}))
    return loop_of(sources, "mcp_servers")


def _source(finder: ServerFinder, server: McpServerParam, field: str, limits: dict[str, Any]) -> ToolSource:
    if server.url is None:
        return finder.of_settings(server.name, f"{field}.name", **limits)
    if not server.name:
        raise invalid(f"`{field}.name` is empty.", f"{field}.name")
    token = server.authorization_token
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return finder.of_address(server.name, server.url, f"{field}.url", headers, **limits)


def _limits(toolset: ToolParam) -> dict[str, Any]:
    """Return the tools that a toolset switches on and off."""
    configs = {name: config for name, config in (toolset.configs or {}).items() if isinstance(config, dict)}
    if _is_on(toolset.default_config, default=True):
        return {"refused": tuple(name for name in configs if not _is_on(configs[name], default=True))}
    return {"allowed": tuple(name for name, config in configs.items() if _is_on(config, default=False))}


def _is_on(config: JsonObject | None, *, default: bool) -> bool:
    enabled = (config or {}).get("enabled")
    return default if not isinstance(enabled, bool) else enabled
