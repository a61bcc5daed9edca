"""Output constraints of a request: on its text, its tool calls and its reasoning."""

from __future__ import annotations

from typing import Any

import attrs

from greenroom.schemas.messages.messages import Tool, ToolChoice


@attrs.frozen
class JsonObjectFormat:
    """The format of any JSON object (`response_format: {"type": "json_object"}`)."""

    param: str = "response_format"


@attrs.frozen
class JsonSchemaFormat:
    """The format of JSON that validates against a schema (`response_format: {"type": "json_schema"}`).

    Args:
        schema: JSON Schema, draft 2020-12; notes/structured-output.md lists the supported keywords.
        name: Name given by the client, for logs only.
        strict: Flag sent by the client; the schema is enforced either way.
        param: Request field of the schema, for errors; likewise in the other formats.
    """

    schema: Any
    name: str = ""
    strict: bool = True
    param: str = "response_format.json_schema.schema"


@attrs.frozen
class RegexFormat:
    """The format of text that matches a regular expression as a whole."""

    pattern: str
    param: str = "response_format.pattern"


@attrs.frozen
class ChoiceFormat:
    """The format of text that equals one of the choices."""

    choices: tuple[str, ...]
    param: str = "response_format.choices"


@attrs.frozen
class LarkFormat:
    """The format of text in a context-free grammar: llguidance's dialect of Lark, start rule `start`."""

    grammar: str
    param: str = "response_format.grammar"


ResponseFormat = JsonObjectFormat | JsonSchemaFormat | RegexFormat | ChoiceFormat | LarkFormat


@attrs.frozen
class CallConstraint:
    """The constraint on tool calls.

    Under `auto`, only the contents of a call are constrained, and only if some tool is strict. `required` and
    `named` force at least one call.

    Args:
        call_format: Id of the tool-call parser for the answer.
        parallel: True if more than one call is allowed.
    """

    tools: tuple[Tool, ...]
    choice: ToolChoice
    call_format: str
    parallel: bool = True


@attrs.frozen
class ReasoningConstraint:
    """The markers of reasoning, and its maximum length.

    Args:
        start: Marker that opens reasoning, e.g. `<think>`.
        end: Marker that closes it.
        opened: True if the prompt ends inside reasoning.
        budget: Maximum number of reasoning tokens before it is closed; None for no limit.
        forced_end: Text that closes reasoning at the budget; by default the end marker on its own line.
        answer_starts: Markers, one of which may precede the visible answer.
    """

    start: str
    end: str
    opened: bool = False
    budget: int | None = None
    forced_end: str = ""
    answer_starts: tuple[str, ...] = ()


@attrs.frozen
class Constraint:
    """All output constraints of a request.

    Args:
        response_format: Required format of the visible answer.
        calls: Constraint on tool calls. With `auto` and a response format, the answer is either.
        reasoning: Constraint on reasoning; None if the model does not reason in this request.
        cache_salt: Name of those who share the compiled constraint; empty for all.
    """

    response_format: ResponseFormat | None = None
    calls: CallConstraint | None = None
    reasoning: ReasoningConstraint | None = None
    cache_salt: str = ""
