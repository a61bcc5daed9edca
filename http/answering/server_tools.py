"""MCP servers in requests: which of them a caller may use, and by which rules they are reached."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from quart import request

from greenroom.http.answering.current_request import caller
from greenroom.http.guard.host_guard import find_loopback_problem
from greenroom.http.media.fetcher import FetchRules, GuardedNetwork
from greenroom.schemas.problems import Problem, ProblemError, invalid
from greenroom.schemas.protocols.tools_protocol import ToolLoop, ToolSource
from greenroom.schemas.settings.settings import Settings
from greenroom.schemas.settings.tool_servers import SERVER_NAME, ToolServer

if TYPE_CHECKING:
    from greenroom.http.answering.route_services import RouteServices

SERVERS = "mcp_servers"  # Member of a chat's `metadata` that names servers
RIGHTS = "mcp:"
"""Beginning of a key's pattern of tools that opens a server: `mcp:files`, or `mcp:files/read_*`."""

_OWN_HEADERS = r"(?!(?i:host|content-length|transfer-encoding|connection)$)"
_HEADER_NAME = re.compile(_OWN_HEADERS + r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e]{0,8000}")
_MOST_SERVERS = 32


class ServerFinder:
    """Finds the servers that a request names, and refuses those that its caller may not use."""

    def __init__(self, services: RouteServices) -> None:
        self._settings: Settings = services.settings_now
        self._known = self._settings.tool_servers

    def usable(self) -> dict[str, bool]:
        """Return the servers that the caller may use, and whether its chats use them if they name none."""
        own = caller().mcp
        return {
            name: name in own if own else server.default
            for name, server in self._known.items()
            if _rights(name) is not None
        }

    def of_settings(self, label: str, field: str, **limits: Any) -> ToolSource:
        """Return a server of the settings. `limits`: further arguments of `ToolSource`. Raises ProblemError:
        400 for one that the caller may not use or that does not exist, 501 without the SDK.
        """
        server, rights = self._known.get(label), _rights(label)
        if server is None or rights is None:
            what = ", ".join(sorted(self.usable())) or "no MCP servers"
            detail = f"`{field}` is {label[:80]!r}, but this caller may use {what}."
            raise invalid(detail, field, "mcp_server_not_found")
        _check_sdk()
        return ToolSource(label, server, label, rights=rights, **limits)

    def of_address(
        self, label: str, url: str, field: str, headers: Mapping[str, Any] | None, **limits: Any
    ) -> ToolSource:
        """Return a server that a request names by its address. Raises ProblemError: 400 for an address that
        the settings do not allow, 501 without the SDK.
        """
        if not self._settings.allow_mcp_urls:
            detail = f"`{field}` names a server by address, for which `allow_mcp_urls` must be set here."
            raise invalid(detail, field, "mcp_url_not_allowed")
        if not SERVER_NAME.fullmatch(label):
            detail = "the name of a server has letters, digits, `_` and `-`, at most 64."
            raise invalid(f"`{field}`: {detail}", field)
        rights = _rights(label)
        if rights is None:
            raise invalid(f"`{field}`: this caller may use no MCP servers.", field, "mcp_server_not_found")
        fetching = self._settings.images_fetch
        hosts = frozenset(host.lower().strip("[].") for host in self._settings.images_fetch_hosts)
        rules = FetchRules("https" if fetching == "off" else fetching, hosts)
        rules.check(url, field)
        for name, value in (headers or {}).items():
            is_text = isinstance(value, str) and _HEADER_VALUE.fullmatch(value)
            if not is_text or not _HEADER_NAME.fullmatch(name):
                raise invalid(f"`{field}`: the header {name[:80]!r} cannot be sent as it is.", field)
        _check_sdk()
        given = tuple(f"{name}={value}" for name, value in (headers or {}).items())
        secret = json.dumps([caller().owner, url, given])
        session = f"url:{hashlib.sha256(secret.encode('utf-8', 'replace')).hexdigest()}"
        network = GuardedNetwork(rules, field)
        return ToolSource(
            label, ToolServer(url=url, headers=given), session, network=network, rights=rights, **limits
        )

    def of_metadata(self, metadata: Any) -> ToolLoop | None:
        """Return the servers that a chat's metadata names, or else those of its key or of every chat.

        Args:
            metadata: Metadata of the request, unchecked; `mcp_servers` has names with commas between them.

        Raises:
            ProblemError: 400 that names the field.
        """
        named = metadata.get(SERVERS) if isinstance(metadata, Mapping) else None
        field = f"metadata.{SERVERS}"
        if named is None:
            names = [name for name, is_default in self.usable().items() if is_default]
        elif isinstance(named, str):
            names = [name.strip() for name in named.split(",") if name.strip()]
        else:
            raise invalid(f"`{field}` must be a string of names with commas between them.", field)
        return loop_of([self.of_settings(name, field) for name in dict.fromkeys(names)], field)


def loop_of(sources: Sequence[ToolSource], field: str, **more: Any) -> ToolLoop | None:
    """Return a loop of the tools of servers; None if there are none. Raises ProblemError: 400 for too many
    servers, or two of one label.
    """
    labels = [source.label for source in sources]
    if len(labels) > _MOST_SERVERS:
        raise invalid(f"`{field}` names more than {_MOST_SERVERS} MCP servers.", field)
    if len({*labels}) < len(labels):
        raise invalid(f"`{field}` has two MCP servers of one label.", field)
    return ToolLoop(tuple(sources), **more) if sources else None


def tool_names(value: Any, field: str) -> tuple[str, ...] | None:
    """Return names of tools, as a list or in a filter with `tool_names`."""
    names = value.get("tool_names") if isinstance(value, dict) else value
    if value is None:
        return None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise invalid(f"`{field}` must be an array of names, or an object with `tool_names`.", field)
    return tuple(names)


def _rights(label: str) -> tuple[str, ...] | None:
    """Return the patterns of a server's tools that the caller may use; None if it may not use the server.

    Without rights of its own, a caller may use servers from this machine only, and with an admin key.
    """
    known = caller()
    named = [each.removeprefix(RIGHTS).partition("/") for each in known.tools if each.startswith(RIGHTS)]
    found = tuple(tool or "*" for server, _, tool in named if fnmatchcase(label, server))
    if found or label in known.mcp:
        return found or ("*",)
    if known.tools:
        return None
    is_local = find_loopback_problem(request.headers, request.remote_addr) is None
    return ("*",) if is_local or (known.has_key and known.admin) else None


def _check_sdk() -> None:
    if find_spec("mcp") is None:
        detail = "MCP servers need the extra `mcp`, which is not installed: uv tool install '.[mcp]'"
        raise ProblemError(Problem(501, "library_missing", detail))
