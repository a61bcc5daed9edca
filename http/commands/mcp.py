"""The commands `greenroom mcp`, `mcp list` and `mcp try`: MCP servers of the settings, and their tools."""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import click
import trio

from greenroom.http.settings.sources import settings_options
from greenroom.http.terminal.streams import for_line, for_terminal
from greenroom.schemas.events.result_events import ToolResult, ToolsListed
from greenroom.schemas.messages.messages import JsonObject, TextPart
from greenroom.schemas.protocols.tools_protocol import CallTool, ListTools, ToolsMessage, ToolSource
from greenroom.schemas.settings.settings import Settings
from greenroom.schemas.settings.tool_servers import ToolServer

if TYPE_CHECKING:
    from greenroom.actors.core.ref import Ref


@click.group("mcp", invoke_without_command=True)
@settings_options("mcp", "mcp_config")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each server.")
@click.pass_context
def command(context: click.Context, settings: Settings, as_json: bool) -> None:
    """List the MCP servers of the settings with their tools, or try a tool.

    Each server is started, or reached, by this command itself.

    \b
    Examples:
      greenroom mcp
      greenroom mcp --mcp-config ~/.cursor/mcp.json
      greenroom mcp try files read_file '{"path": "notes.txt"}'
    """
    context.obj = settings
    if context.invoked_subcommand is None:
        _print_servers(settings, as_json)


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each server.")
@click.pass_obj
def list_servers(settings: Settings, as_json: bool) -> None:
    """List the servers with their tools."""
    _print_servers(settings, as_json)


@command.command("try")
@click.argument("name")
@click.argument("tool")
@click.argument("arguments", default="{}")
@click.pass_obj
def try_tool(settings: Settings, name: str, tool: str, arguments: str) -> None:
    """Call TOOL of the server NAME with ARGUMENTS, a JSON object, and print its result."""
    server = _servers(settings).get(name)
    if server is None:
        known = ", ".join(settings.tool_servers) or "none"
        raise click.ClickException(f"there is no MCP server '{name}' in the settings; known: {known}")
    source = ToolSource(name, server, name)
    call = CallTool("call", source, tool, _object(arguments))
    result = trio.run(_ask, lambda tools: tools.ask(call, ToolResult))
    for part in result.content:
        data = getattr(part, "data", b"")
        text = part.text if isinstance(part, TextPart) else base64.b64encode(data).decode()
        click.echo(for_terminal(text), err=result.failed)
    if result.failed:
        raise click.exceptions.Exit(1)


def _print_servers(settings: Settings, as_json: bool) -> None:
    servers = _servers(settings)
    for listed in trio.run(_ask, lambda tools: _list_all(tools, servers)) if servers else ():
        server = servers[listed.server]
        if as_json:
            tools = [{"name": tool.name, "description": tool.description} for tool in listed.tools]
            body = {"name": listed.server, "kind": server.kind, "error": listed.error or None, "tools": tools}
            click.echo(json.dumps(body))
            continue
        what = " ".join((server.command or "", *server.args)) if server.url is None else server.url
        click.echo(for_line(f"{listed.server}  {what}"))
        if listed.error:
            click.echo(f"  {for_line(listed.error)}")
        for tool in listed.tools:
            begun = tool.description.strip().partition("\n")[0]
            click.echo(for_line(f"  {tool.name}  {begun}"[:118]))
    if not servers:
        click.echo("There are no MCP servers: tables [mcp.NAME] in the settings file name them.", err=True)


def _servers(settings: Settings) -> dict[str, ToolServer]:
    servers = settings.tool_servers
    if servers:
        require_sdk()
    return servers


def require_sdk() -> None:
    """Refuse to go on without the SDK. Raises ClickException: it is not installed; the message says how to
    install it.
    """
    from importlib.util import find_spec

    if find_spec("mcp") is None:
        raise click.ClickException("MCP servers need the extra `mcp`: uv tool install '.[mcp]'")


async def _list_all(tools: Ref[ToolsMessage], servers: Mapping[str, ToolServer]) -> list[ToolsListed]:
    listed: dict[str, ToolsListed] = {}

    async def list_one(name: str, server: ToolServer) -> None:
        answer = await tools.ask(ListTools(ToolSource(name, server, name)), ToolsListed)
        assert isinstance(answer, ToolsListed)
        listed[name] = answer

    async with trio.open_nursery() as nursery:
        for name, server in servers.items():
            nursery.start_soon(list_one, name, server)
    return [listed[name] for name in servers]


async def _ask(question: Callable[[Ref[ToolsMessage]], Awaitable[Any]]) -> Any:
    from greenroom.actors.tools.tools import Tools

    async with trio.open_nursery() as nursery:
        actor = Tools(Settings())
        nursery.start_soon(actor.run)
        answer = await question(actor.ref)
        nursery.cancel_scope.cancel("the answer has come")
    return answer


def _object(text: str) -> JsonObject:
    try:
        arguments = json.loads(text)
    except ValueError as error:
        raise click.ClickException(f"ARGUMENTS must be a JSON object: {error}") from error
    if not isinstance(arguments, dict):
        raise click.ClickException("ARGUMENTS must be a JSON object")
    return arguments
