"""Settings of MCP servers, whose tools the models may call: the tables `[mcp.NAME]` of the settings file."""

from __future__ import annotations

import re
from typing import Literal

import attrs

from greenroom.schemas.settings.setting_groups import merge_tables, setting, setting_table

SERVER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
"""Pattern of the names of MCP servers."""
ALWAYS, NEVER = "always", "never"


@attrs.frozen(repr=False)
class ToolServer:
    """One MCP server: a program that is started here, or an address."""

    command: str | None = setting(None, "Program to start, which speaks MCP on its standard streams.")
    args: tuple[str, ...] = setting((), "Its arguments.")
    env: tuple[str, ...] = setting(
        (),
        "Its environment, as a table or as NAME=VALUE; beside it there are PATH, HOME and the like.",
        secret=True,
    )
    url: str | None = setting(None, "Address of a server that speaks streamable HTTP, instead of a program.")
    headers: tuple[str, ...] = setting(
        (), "Headers of requests to that address, as a table or as NAME=VALUE.", secret=True
    )
    timeout: float = setting(30.0, "Longest time of a call or of a list of tools, in seconds.", above=0)
    allowed_tools: tuple[str, ...] = setting((), "Names or patterns of the tools on offer; empty for all.")
    require_approval: tuple[str, ...] = setting(
        (NEVER,), "`never`, `always`, or the tools whose calls wait for the user's approval."
    )
    default: bool = setting(False, "Offer the tools to chats that name no servers.")

    def __attrs_post_init__(self) -> None:
        if self.url is not None and not re.match(r"(?i:https?)://[^/\s]", self.url):
            raise ValueError("url must begin with http:// or https://")
        for pair in (*self.env, *self.headers):
            if "=" not in pair:
                raise ValueError("an entry of env or headers must be NAME=VALUE")

    @property
    def kind(self) -> Literal["stdio", "http"]:
        """The road to the server: the streams of a program, or HTTP."""
        return "http" if self.command is None else "stdio"


def pairs(entries: tuple[str, ...]) -> dict[str, str]:
    """Return entries `NAME=VALUE` as a dictionary."""
    return dict(entry.split("=", 1) for entry in entries)


ToolServerTables = tuple[tuple[str, ToolServer], ...]
"""Pairs of a server's name and its settings."""


def merge_servers(tables: ToolServerTables) -> dict[str, ToolServer]:
    """Return MCP servers by name; of several tables with one name, the first that sets a value decides it.

    Raises:
        ValueError: A server has neither a program nor an address, or both.
    """
    servers = merge_tables(ToolServer, tables)
    for name, server in servers.items():
        if (server.command is None) == (server.url is None):
            raise ValueError(f"mcp.{name} needs either `command` or `url`")
    return servers


@attrs.frozen(slots=False)
class ToolServers:
    """Settings of MCP servers."""

    mcp: ToolServerTables = setting_table(
        ToolServer,
        "MCP servers, as tables `[mcp.NAME]` with `command` or `url`, whose tools models may call.",
    )
    mcp_config: str | None = setting(
        None, "File `mcp.json` of another client, such as Claude Desktop or Cursor, with further MCP servers."
    )
    allow_mcp_urls: bool = setting(
        False, "Let requests name MCP servers by address: public ones, or hosts in `[images] fetch_hosts`."
    )
