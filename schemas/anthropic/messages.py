"""What clients of `POST /v1/messages` and `/v1/messages/count_tokens` send (Anthropic's API reference)."""

from __future__ import annotations

from typing import Annotated, Any, NewType

import attrs

from greenroom.schemas.anthropic.converter import ANTHROPIC
from greenroom.schemas.messages import MAX_MESSAGES, MAX_PARTS, MAX_TOOLS
from greenroom.schemas.wire import AtMost, one_of, wrong_type

Role = NewType("Role", str)

ROLES = ("user", "assistant", "system")


@attrs.frozen
class BlockParam:
    """A block of content; its type says which of the members it has.

    Args:
        source: Of a document or an image an object, of a search result a string.
        citations: Of a text a list, of a document whether they are wanted.
        tool: Of a change to the tools on offer, what it is about.
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
    """The content of a message or a block: a string on the wire is one block of text.

    Args:
        raw: As it came; an object holds no blocks, and stands only for a result of one of Anthropic's tools.
    """

    blocks: tuple[BlockParam, ...]
    raw: Any = attrs.field(default=None, eq=False, repr=False)


@attrs.frozen
class ContentSourceParam:
    """The source of a document that is made of blocks."""

    content: Content


@attrs.frozen
class MessageParam:
    """One message of the request.

    Args:
        clear_at: How long a system message counts.
        output_config: Of a system message: for the turns behind it.
    """

    role: Role
    content: Content
    clear_at: str | None = None
    output_config: dict[str, Any] | None = None


@attrs.frozen
class ToolParam:
    """A tool that is offered; one of another type than `custom` is known to Anthropic by that alone."""

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
    """Whether and which tools are to be called."""

    type: str
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


@attrs.frozen
class ThinkingParam:
    """Whether to think, and whether to show it; the budget is a generation parameter."""

    type: str
    display: str | None = None


@attrs.frozen
class FormatParam:
    """What the answer must look like."""

    type: str
    schema: dict[str, Any] | None = None


@attrs.frozen
class OutputConfigParam:
    """How to answer."""

    effort: str | None = None
    format: FormatParam | None = None


@attrs.frozen
class ContextManagementParam:
    """What is to be done to the history before it is read."""

    edits: tuple[dict[str, Any], ...] | None = None


@attrs.frozen(kw_only=True)
class PromptRequest:
    """What the prompt is made of: all that the tokens of a request depend on."""

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
    """The body of a request for an answer, but for its other generation parameters.

    Those have a table of their own (`greenroom.http.anthropic.requests.parameters`).
    """

    max_tokens: int
    stream: bool | None = None
    diagnostics: dict[str, Any] | None = None


_Blocks = Annotated[tuple[BlockParam, ...], AtMost(MAX_PARTS)]


def _content(value: Any, _: Any) -> Content:
    if isinstance(value, str):
        return Content((BlockParam("text", text=value),), value)
    if isinstance(value, dict):
        # The results of Anthropic's own tools may be one object.
        return Content((), value)
    if not isinstance(value, list):
        raise wrong_type("a string or an array of blocks", value)
    return Content(ANTHROPIC.structure(value, _Blocks), value)


def _optional_content(value: Any, kind: Any) -> Content | None:
    return None if value is None else _content(value, kind)


ANTHROPIC.register_structure_hook(Role, lambda value, _: Role(one_of(ROLES, value)))
ANTHROPIC.register_structure_hook(Content, _content)
ANTHROPIC.register_structure_hook(Content | None, _optional_content)
