"""Bodies of Anthropic's endpoints: requests, answers and their converter."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import attrs

from greenroom.schemas.messages.messages import MAX_MESSAGES, MAX_PARTS, MAX_TOOLS, JsonObject
from greenroom.schemas.wire.wire import AtMost, make_wire_converter, wrong_type


@attrs.frozen
class UsageBody:
    """Token usage of a request; the prompt's length is the sum of the first three fields."""

    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int
    output_tokens_details: dict[str, int]


@attrs.frozen
class MessageBody:
    """The response body of `POST /v1/messages`, also sent in a stream's `message_start` event.

    Args:
        usage: Token usage; None while it is unknown.
        diagnostics: Diagnostics object; omitted unless the client requests it.
    """

    id: str
    type: Literal["message"] = attrs.field(default="message", kw_only=True)
    role: Literal["assistant"] = attrs.field(default="assistant", kw_only=True)
    model: str
    content: tuple[dict[str, Any], ...]
    stop_reason: str | None
    stop_sequence: str | None
    usage: UsageBody | None
    diagnostics: dict[str, Any] | None = None


@attrs.frozen
class ModelBody:
    """An entry of the list of models; `created_at` is an RFC 3339 timestamp.

    Args:
        capabilities: Anthropic features that the model supports; None, like the limits, if unknown.
        max_input_tokens: Maximum prompt length in tokens.
        max_tokens: Maximum answer length in tokens.
    """

    type: Literal["model"] = attrs.field(default="model", kw_only=True)
    id: str
    display_name: str
    created_at: str
    capabilities: JsonObject | None = None
    max_input_tokens: int | None = None
    max_tokens: int | None = None
    lifecycle: Literal["active"] = attrs.field(default="active", kw_only=True)


@attrs.frozen
class ModelPage:
    """One page of the list of models."""

    data: tuple[ModelBody, ...]
    has_more: bool
    first_id: str | None
    last_id: str | None


ANTHROPIC = make_wire_converter()


@attrs.frozen
class BlockParam:
    """A content block; `type` decides which fields it has.

    Args:
        source: Source object of a document or an image; a string for a search result.
        citations: List of citations of a text; settings of citations for a document.
        tool: Subject of a block that changes the available tools.
    """

    type: str
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None
    tool_use_id: str | None = None
    tool_name: str | None = None
    content: Content | None = None
    is_error: bool | None = None
    source: Any = None
    title: str | None = None
    context: str | None = None
    citations: Any = None
    tool: dict[str, Any] | None = None


@attrs.frozen
class Content:
    """The content of a message or a block; a string on the wire becomes one text block.

    Args:
        raw: The value as received; an object, which has no blocks, only for results of Anthropic's own tools.
    """

    blocks: tuple[BlockParam, ...]
    raw: Any = attrs.field(default=None, eq=False, repr=False)


@attrs.frozen
class ContentSourceParam:
    """The source of a document that consists of content blocks."""

    content: Content


@attrs.frozen
class MessageParam:
    """A message of the request.

    Args:
        clear_at: Lifetime of a system message.
        output_config: Output options of a system message, for the turns after it.
    """

    role: Literal["user", "assistant", "system"]
    content: Content
    clear_at: str | None = None
    output_config: dict[str, Any] | None = None


@attrs.frozen
class ToolParam:
    """A tool definition; Anthropic's own tools are identified by their `type` alone."""

    name: str | None = None
    type: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    strict: bool | None = None
    defer_loading: bool | None = None
    input_examples: tuple[dict[str, Any], ...] | None = None
    allowed_callers: tuple[str, ...] | None = None
    mcp_server_name: str | None = None
    default_config: dict[str, Any] | None = None
    configs: dict[str, Any] | None = None


@attrs.frozen
class McpServerParam:
    """An MCP server: without a URL, it is one of the settings."""

    name: str
    url: str | None = None
    authorization_token: str | None = attrs.field(default=None, repr=False)
    tool_configuration: dict[str, Any] | None = None


@attrs.frozen
class ToolChoiceParam:
    """The choice of tools: required, optional or forbidden, or one named tool."""

    type: str
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


@attrs.frozen
class ThinkingParam:
    """Settings of reasoning and its display; the token budget is a generation parameter."""

    type: str
    display: str | None = None


@attrs.frozen
class FormatParam:
    """The required format of the answer."""

    type: str
    schema: dict[str, Any] | None = None


@attrs.frozen
class OutputConfigParam:
    """Options of the answer: effort and format."""

    effort: str | None = None
    format: FormatParam | None = None


@attrs.frozen
class ContextManagementParam:
    """Edits to apply to the history before the model reads it."""

    edits: tuple[dict[str, Any], ...] | None = None


@attrs.frozen(kw_only=True)
class PromptRequest:
    """The fields that determine the prompt's tokens."""

    model: str
    messages: Annotated[tuple[MessageParam, ...], AtMost(MAX_MESSAGES)]
    system: Content | None = None
    tools: Annotated[tuple[ToolParam, ...], AtMost(MAX_TOOLS)] | None = None
    tool_choice: ToolChoiceParam | None = None
    thinking: ThinkingParam | None = None
    output_config: OutputConfigParam | None = None
    output_format: FormatParam | None = None
    context_management: ContextManagementParam | None = None


@attrs.frozen(kw_only=True)
class MessagesRequest(PromptRequest):
    """The body of `POST /v1/messages`, without most generation parameters.

    A separate table describes those (`greenroom.http.anthropic.messages_request`).
    """

    max_tokens: int
    stream: bool | None = None
    diagnostics: dict[str, Any] | None = None
    mcp_servers: Annotated[tuple[McpServerParam, ...], AtMost(MAX_TOOLS)] | None = None


_Blocks = Annotated[tuple[BlockParam, ...], AtMost(MAX_PARTS)]


def _content(value: Any, _: Any) -> Content:
    if isinstance(value, str):
        return Content((BlockParam("text", text=value),), value)
    if isinstance(value, dict):
        # Results of Anthropic's own tools may be a single object.
        return Content((), value)
    if not isinstance(value, list):
        raise wrong_type("a string or an array of blocks", value)
    return Content(ANTHROPIC.structure(value, _Blocks), value)


def _optional_content(value: Any, kind: Any) -> Content | None:
    return None if value is None else _content(value, kind)


ANTHROPIC.register_structure_hook(Content, _content)
ANTHROPIC.register_structure_hook(Content | None, _optional_content)
