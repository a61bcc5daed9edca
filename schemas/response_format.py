"""What an answer must look like: constraints on its text, its calls and its thought."""

from __future__ import annotations

from typing import Any

import attrs

from greenroom.schemas.messages import Tool, ToolChoice


@attrs.frozen
class JsonObjectFormat:
    """Any JSON object (`response_format: {"type": "json_object"}`)."""

    param: str = "response_format"


@attrs.frozen
class JsonSchemaFormat:
    """JSON that validates (`response_format: {"type": "json_schema"}`).

    Args:
        schema: JSON Schema, draft 2020-12; the keywords that are honoured stand in
            notes/structured-output.md.
        name: What the client calls it; only for logs.
        strict: As the client sent it; the schema is honoured either way.
        param: Where the request holds it, for errors; so in the other formats.
    """

    schema: Any
    name: str = ""
    strict: bool = True
    param: str = "response_format.json_schema.schema"


@attrs.frozen
class RegexFormat:
    """Text that matches the regular expression from its first to its last character."""

    pattern: str
    param: str = "response_format.pattern"


@attrs.frozen
class ChoiceFormat:
    """One of these texts, exactly."""

    choices: tuple[str, ...]
    param: str = "response_format.choices"


@attrs.frozen
class LarkFormat:
    """Text of a context-free grammar in llguidance's dialect of Lark, whose start rule is `start`."""

    grammar: str
    param: str = "response_format.grammar"


ResponseFormat = JsonObjectFormat | JsonSchemaFormat | RegexFormat | ChoiceFormat | LarkFormat


@attrs.frozen
class CallConstraint:
    """How tools may be called.

    Under `auto` only the inside of a call is constrained, and only if some tool is strict; `required` and
    `named` make at least one call.

    Args:
        call_format: Id of the tool-call parser that will read the answer.
        parallel: More than one call is allowed.
    """

    tools: tuple[Tool, ...]
    choice: ToolChoice
    call_format: str
    parallel: bool = True


@attrs.frozen
class ThoughtConstraint:
    """Where a thought begins and ends, and how long it may be.

    Args:
        start: Marker that opens a thought, e.g. `<think>`.
        end: Marker that closes it.
        opened: The prompt ends inside the thought.
        budget: Tokens that the thought may take before it is closed; None is unlimited.
        forced_end: What closes it then; by default the marker on a line of its own.
        answer_starts: Markers of which one may stand before the visible answer.
    """

    start: str
    end: str
    opened: bool = False
    budget: int | None = None
    forced_end: str = ""
    answer_starts: tuple[str, ...] = ()


@attrs.frozen
class Constraint:
    """Everything that one request demands of its output.

    Args:
        response_format: What the visible answer must look like.
        calls: How tools may be called. With `auto` and a response format, the answer is either.
        thought: How the model marks its thoughts; None if it does not think in this request.
    """

    response_format: ResponseFormat | None = None
    calls: CallConstraint | None = None
    thought: ThoughtConstraint | None = None
