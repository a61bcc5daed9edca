"""Tools of a request, read alike for all protocols: arguments, choice, custom tools, and those left out."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable
from typing import Any

from greenroom.http.guard.json_counter import JsonCounter
from greenroom.schemas.logs import get_logger
from greenroom.schemas.messages.messages import (
    ARGUMENT,
    JsonObject,
    TextInput,
    Tool,
    ToolCall,
    ToolChoice,
    arguments_of,
    text_tool,
)
from greenroom.schemas.messages.requests import ChatInput, InferenceRequest
from greenroom.schemas.problems import ProblemError, invalid, missing
from greenroom.schemas.wire.wire import json_type


class ArgumentCheck:
    """Refuses past calls whose arguments together exceed the limits on a JSON body."""

    def __init__(self) -> None:
        # Arguments that are too deep to decode stay text, like any other invalid JSON from a model.
        self._counter = JsonCounter(max_depth=math.inf)

    def check(self, arguments: str, field: str) -> None:
        """Count the JSON values in the arguments of the next call. Raises ProblemError: 400 that names the
        field.
        """
        self._counter.begin_document()
        try:
            self._counter.feed(arguments.encode("utf-8", "surrogatepass"))
        except ProblemError as error:
            raise invalid(f"`{field}` is too much: {error.problem.detail}", field) from None


_SYNTAXES = ("lark", "regex")


def parse_custom_tool(wire: Any, field: str) -> Tool:
    """Return a custom tool.

    Args:
        wire: Object with the tool's name, description and format. Responses puts a grammar into the format
            itself, chat into its member `grammar`.

    Raises:
        ProblemError: 400 that names the field.
    """
    if not isinstance(wire, dict):
        raise missing(field) if wire is None else _wrong(field, "an object", wire)
    name, description = wire.get("name"), wire.get("description")
    if name is None:
        raise missing(f"{field}.name")
    if not isinstance(name, str) or not name:
        raise invalid(f"`{field}.name` must be a string that is not empty.", f"{field}.name")
    if description is not None and not isinstance(description, str):
        raise _wrong(f"{field}.description", "a string", description)
    takes, param = _text_input(wire.get("format"), f"{field}.format")
    return text_tool(name, description or "", takes, param)


def custom_call(call_id: str, name: str, text: str) -> ToolCall:
    return ToolCall(call_id, name, arguments_of(text))


def custom_names_of(request: InferenceRequest) -> frozenset[str]:
    tools = request.input.tools if isinstance(request.input, ChatInput) else ()
    return frozenset(tool.name for tool in tools if tool.input is not None)


def check_names(tools: Iterable[Tool], fields: Iterable[str]) -> None:
    """Refuse a custom tool with the name of another tool: their calls could not be told apart. Raises
    ProblemError: 400 that names the field.
    """
    seen: dict[str, Tool] = {}
    for tool, field in zip(tools, fields, strict=True):
        other = seen.setdefault(tool.name, tool)
        if other is not tool and (tool.input is not None or other.input is not None):
            detail = f"`{field}` has the name {tool.name[:80]!r}, which another tool already has."
            raise invalid(detail, field)


def definition_of(tool: Tool) -> str:
    """Return the definition of a tool as the model reads it within a conversation."""
    members = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return json.dumps(members, ensure_ascii=False)


def _text_input(wire: Any, field: str) -> tuple[TextInput, str]:
    if wire is None:
        return TextInput(), field
    if not isinstance(wire, dict):
        raise _wrong(field, "an object", wire)
    match wire.get("type"):
        case "text":
            return TextInput(), field
        case "grammar":
            pass
        case _:
            raise invalid(f"`{field}.type` must be 'text' or 'grammar'.", f"{field}.type")
    grammar = wire
    if wire.get("grammar") is not None:
        grammar, field = wire["grammar"], f"{field}.grammar"
        if not isinstance(grammar, dict):
            raise _wrong(field, "an object", grammar)
    syntax, definition = grammar.get("syntax"), grammar.get("definition")
    if syntax not in _SYNTAXES:
        raise invalid(f"`{field}.syntax` must be 'lark' or 'regex'.", f"{field}.syntax")
    field = f"{field}.definition"
    if definition is None:
        raise missing(field)
    if not isinstance(definition, str):
        raise _wrong(field, "a string", definition)
    if not definition.isascii() and not _is_text(definition):
        raise invalid(f"`{field}` contains half of a surrogate pair, which is not valid text.", field)
    return TextInput(syntax, definition), field


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _wrong(field: str, expected: str, value: Any) -> ProblemError:
    return invalid(f"`{field}` must be {expected}, but is {json_type(value)}.", field)


# Tools that only the makers of a protocol can run, such as web search.
#
# Agents offer them with every request beside their own tools, so they are left out there. A request that
# offers nothing else would get an answer that looks as if the tool had been used, so it is refused.

log = get_logger(actor="http")
_LONGEST_KIND, _MOST_KINDS = 40, 50
"""Limits on what is logged, since clients choose the text."""


def log_left_out(kinds: Iterable[str]) -> None:
    """Log the kinds of a request's tools that are left out, in one line of the debug log.

    Agents offer the same tools with every request, so a line of a higher level would fill the log.
    """
    names = list(dict.fromkeys(kind[:_LONGEST_KIND] for kind in kinds))
    if names:
        log.debug("tools left out", tools=names[:_MOST_KINDS])


def none_left(kind: str, field: str = "tools[0]") -> ProblemError:
    """Return the 400 for a request whose tools are all left out."""
    detail = (
        f"`{field}.type` is {kind[:_LONGEST_KIND]!r}, which this server neither runs nor describes to the "
        "model, and no other tool is offered. Offer functions that your program runs, or leave `tools` out."
    )
    return invalid(detail, f"{field}.type", "unsupported_parameter")


_HEAD = re.compile(rf'\s*\{{\s*"{ARGUMENT}"\s*:\s*"')
_PARTS = "|".join(f'"{ARGUMENT[:end]}' for end in range(len(ARGUMENT) + 1))
_HEAD_SO_FAR = re.compile(rf'\s*(?:\{{\s*(?:{_PARTS}|"{ARGUMENT}"\s*:?\s*)?)?\Z')
_INSIDE = re.compile(
    r'(?:[^"\\]++|\\(?:[^u]|u(?:[dD][89abAB][0-9a-fA-F]{2}\\u[0-9a-fA-F]{4}|[0-9a-fA-F]{4})))*+'
)
_HALF_PAIR = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\Z")


class TextInputReader:
    """Extracts the text incrementally while the model writes the arguments.

    An unconstrained call may have arguments other than `{"input": "…"}`. These are read once complete: the
    text is their only string value, or else the arguments themselves.
    """

    def __init__(self) -> None:
        self._pending = ""
        self._part = "head"

    def feed(self, fragment: str) -> str:
        self._pending += fragment
        if self._part == "head":
            self._read_head()
        if self._part == "text":
            return self._read_text()
        return self._read_other() if self._part == "other" else ""

    def finish(self) -> str:
        """Return the remaining text when the arguments end, complete or not."""
        rest, part = self._pending, self._part
        self._pending, self._part = "", "ended"
        return rest if part == "other" else ""

    def _read_head(self) -> None:
        if found := _HEAD.match(self._pending):
            self._pending, self._part = self._pending[found.end() :], "text"
        elif not _HEAD_SO_FAR.match(self._pending):
            self._part = "other"

    def _read_text(self) -> str:
        end = _INSIDE.match(self._pending).end()  # type: ignore[union-attr]
        if not self._pending.startswith('"', end) and (half := _HALF_PAIR.search(self._pending, 0, end)):
            end = half.start()
        inside, self._pending = self._pending[:end], self._pending[end:]
        if self._pending.startswith('"'):
            self._pending, self._part = "", "ended"
        return str(json.loads(f'"{inside}"', strict=False))

    def _read_other(self) -> str:
        try:
            arguments = json.loads(self._pending)
        except (ValueError, RecursionError):
            return ""
        texts = list(arguments.values()) if isinstance(arguments, dict) else []
        text = texts[0] if len(texts) == 1 and isinstance(texts[0], str) else self._pending
        self._pending, self._part = "", "ended"
        return text


def text_of(arguments: str) -> str:
    reader = TextInputReader()
    return reader.feed(arguments) + reader.finish()


TOOL_CHOICE = "tool_choice"


def parse_tool_choice(
    value: Any,
    name_of: Callable[[JsonObject, str], str],
    allowed: Callable[[JsonObject], ToolChoice],
    remedy: str,
) -> ToolChoice:
    """Return the tool choice of a request. Raises ProblemError: 400 that names the field."""
    match value:
        case None | "auto":
            return ToolChoice("auto")
        case "none":
            return ToolChoice("none")
        case "required":
            return ToolChoice("required")
        case {"type": "function" | "custom"}:
            return ToolChoice("named", name_of(value, TOOL_CHOICE))
        case {"type": "allowed_tools"}:
            return allowed(value)
        case {"type": str(kind)}:
            field = f"{TOOL_CHOICE}.type"
            raise invalid(f"`{field}` is {kind[:40]!r}, {remedy}.", field, "unsupported_parameter")
        case _:
            detail = f"`{TOOL_CHOICE}` must be 'none', 'auto', 'required', or an object with a type."
            raise invalid(detail, TOOL_CHOICE)


def allows_parallel_calls(wanted: bool | None, choice: ToolChoice) -> bool:
    """Return whether a response may contain several calls.

    A named function is called exactly once (OpenAI's guide to function calling): clients that execute a
    command would execute it again for each further call. Required calls may be several only if the client
    says so: small models seldom choose the end, and would repeat a call up to the limit.
    """
    if choice.mode == "required":
        return wanted is True
    return wanted is not False and choice.mode != "named"


def parse_allowed(value: JsonObject, path: str) -> tuple[ToolChoice, list[Any]]:
    """Return the mode of an `allowed_tools` choice, and the entries of its tools. Raises ProblemError: 400
    that names the field.
    """
    mode = value.get("mode", "auto")
    if mode not in ("auto", "required"):
        raise invalid(f"`{path}.mode` must be 'auto' or 'required'.", f"{path}.mode")
    tools = value.get("tools")
    if not isinstance(tools, list) or not tools:
        raise missing(f"{path}.tools")
    return ToolChoice("required" if mode == "required" else "auto"), tools
