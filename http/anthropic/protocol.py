"""Anthropic's protocol as a `WireProtocol`, its message routes, and the MCP toolsets of a request."""

from __future__ import annotations

from functools import partial
from typing import Any

import attrs
from quart import Blueprint, Response, request

from greenroom.actors.requests.prompt_queries import count_prompt_tokens
from greenroom.http.answering.answer_request import answer_request
from greenroom.http.answering.current_request import answer_id, request_client, request_id
from greenroom.http.answering.http_responses import json_response
from greenroom.http.answering.protocols import ANSWERED_BY_A_MODEL, EVENTS, JSON, WireProtocol, described
from greenroom.http.answering.route_services import RouteServices
from greenroom.http.answering.server_tools import ServerFinder, loop_of, tool_names
from greenroom.http.anthropic.conversation import TOOLSET
from greenroom.http.anthropic.message_stream import MessageFormatter, asks_to_cache, error_members
from greenroom.http.anthropic.messages_request import UNSUPPORTED, parse_messages_request
from greenroom.http.anthropic.models import AnthropicModelFormatter
from greenroom.schemas.messages.messages import JsonObject
from greenroom.schemas.messages.requests import InferenceRequest
from greenroom.schemas.problems import Problem, ProblemError, invalid, missing
from greenroom.schemas.protocols.tools_protocol import ToolLoop, ToolSource
from greenroom.schemas.wire.anthropic import (
    ANTHROPIC,
    McpServerParam,
    MessageBody,
    MessagesRequest,
    PromptRequest,
    ToolParam,
)


def message_routes(services: RouteServices) -> Blueprint:
    routes = Blueprint("messages", __name__)

    @routes.post("/v1/messages")
    @described(
        "Answer a chat in Anthropic's protocol",
        body=MessagesRequest,
        converter=ANTHROPIC,
        answer=MessageBody,
        media=(JSON, EVENTS),
        problems=ANSWERED_BY_A_MODEL,
    )
    async def messages() -> Response:
        neutral = partial(
            parse_messages_request, request_id=request_id(), client=request_client(), betas=_betas()
        )

        def parse(wire: MessagesRequest, body: JsonObject) -> tuple[InferenceRequest, bool]:
            return neutral(wire, body), asks_to_cache(body)

        wire, (asked, marked) = await services.read_request(
            MessagesRequest, ANTHROPIC, UNSUPPORTED, parse, files=True, adapts=True
        )
        # The parsed request has its own copy of the messages; holding files twice would waste memory.
        wire = attrs.evolve(wire, messages=())
        formatter = MessageFormatter(wire, answer_id("msg_"), request_id(), marked)
        stream = bool(wire.stream)
        loop = message_loop(ServerFinder(services), wire)
        return await answer_request(services, [asked], formatter, stream=stream, loop=loop)

    @routes.post("/v1/messages/count_tokens")
    @described(
        "Count the tokens of a prompt", body=PromptRequest, converter=ANTHROPIC, problems=ANSWERED_BY_A_MODEL
    )
    async def count_tokens() -> Response:
        parse = partial(
            parse_messages_request, request_id=request_id(), client=request_client(), betas=_betas()
        )
        _, asked = await services.read_request(
            PromptRequest, ANTHROPIC, UNSUPPORTED, parse, files=True, adapts=True
        )
        counted = await count_prompt_tokens(services.refs.pool, await services.with_files(asked))
        return json_response({"input_tokens": counted})

    return routes


def _betas() -> str:
    return ",".join(request.headers.getlist("anthropic-beta"))


def probe_routes() -> Blueprint:
    routes = Blueprint("probes", __name__)

    @routes.get("/api/hello")
    @described("Greet a client that tests the connection")
    async def hello() -> Response:
        return json_response({"message": "hello"})

    @routes.route("/v1/messages/batches", defaults={"_path": ""}, methods=["GET", "POST"])
    @routes.route("/v1/messages/batches/<path:_path>", methods=["GET", "POST", "DELETE"])
    @described("Refuse batches", status=None, problems=(501,))
    async def batches(_path: str) -> Response:
        detail = "Batches are not served here: send their requests to /v1/messages, many at once if you like."
        raise ProblemError(Problem(501, "batches_not_supported", detail))

    return routes


def _routes(services: RouteServices) -> tuple[Blueprint, ...]:
    return message_routes(services), probe_routes()


ANTHROPIC_PROTOCOL: WireProtocol = WireProtocol(
    ("/v1/messages", "/api/hello"),
    _routes,
    error_members,
    AnthropicModelFormatter(),
    mark="anthropic-version",
    name="anthropic",
)


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
    if len(servers) < len(wire.mcp_servers or ()):
        raise invalid("`mcp_servers` has two servers of one name.", "mcp_servers")
    sources: list[ToolSource] = []
    toolsets = [(i, tool) for i, tool in enumerate(wire.tools or ()) if tool.type == TOOLSET]
    for index, toolset in toolsets:
        field = f"tools[{index}].mcp_server_name"
        if not toolset.mcp_server_name:
            raise missing(field)
        found = servers.pop(toolset.mcp_server_name, None)
        limits = _limits(toolset, f"tools[{index}]")
        if found is None:
            sources.append(finder.of_settings(toolset.mcp_server_name, field, **limits))
        else:
            sources.append(_source(finder, found[1], f"mcp_servers[{found[0]}]", limits))
    for index, server in servers.values():
        field = f"mcp_servers[{index}]"
        settings = server.tool_configuration or {}
        if _is_on(settings, f"{field}.tool_configuration"):
            allowed = tool_names(settings.get("allowed_tools"), f"{field}.tool_configuration.allowed_tools")
            sources.append(_source(finder, server, field, {"allowed": allowed}))
    return loop_of(sources, "mcp_servers")


def _source(finder: ServerFinder, server: McpServerParam, field: str, limits: dict[str, Any]) -> ToolSource:
    if server.url is None:
        return finder.of_settings(server.name, f"{field}.name", **limits)
    token = server.authorization_token
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return finder.of_address(server.name, server.url, f"{field}.url", headers, **limits)


def _limits(toolset: ToolParam, field: str) -> dict[str, Any]:
    """Return the tools that a toolset switches on and off."""
    default = _is_on(toolset.default_config, f"{field}.default_config")
    configs = toolset.configs or {}
    changed = (name for name in configs if _is_on(configs[name], f"{field}.configs", default) != default)
    return {"refused" if default else "allowed": tuple(changed)}


def _is_on(config: Any, field: str, default: bool = True) -> bool:
    enabled = config.get("enabled") if isinstance(config, dict) else config
    if enabled is None:
        return default
    if not isinstance(enabled, bool):
        raise invalid(f"`{field}` must have true or false as `enabled`.", f"{field}.enabled", "invalid_type")
    return enabled
