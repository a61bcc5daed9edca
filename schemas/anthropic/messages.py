"""Request bodies of `POST /v1/messages` and `/v1/messages/count_tokens` (Anthropic's API reference)."""

from __future__ import annotations

from typing import Annotated, Any, NewType

import attrs

from greenroom.schemas.anthropic.converter import ANTHROPIC
from greenroom.schemas.messages.messages import MAX_MESSAGES, MAX_PARTS, MAX_TOOLS
from greenroom.schemas.wire import AtMost, one_of, wrong_type

Role = NewType("Role", str)

ROLES = ("user", "assistant", "system")


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

    role: Role
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

    A separate table describes those (`greenroom.http.anthropic.requests.parameters`).
    """

    max_tokens: int
    stream: bool | None = None
    diagnostics: dict[str, Any] | None = None


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


ANTHROPIC.register_structure_hook(Role, lambda value, _: Role(one_of(ROLES, value)))
ANTHROPIC.register_structure_hook(Content, _content)
ANTHROPIC.register_structure_hook(Content | None, _optional_content)
