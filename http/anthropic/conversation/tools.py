"""Tools of a request: those at the start of the prompt, and those that the conversation may load."""

from __future__ import annotations

import json
from collections.abc import Sequence

import attrs

from greenroom.http.answering.tools.left_out_tools import log_left_out, none_left
from greenroom.schemas.anthropic.messages import ToolChoiceParam, ToolParam
from greenroom.schemas.messages.messages import Tool, ToolChoice
from greenroom.schemas.problems import invalid, missing

_OWN_TYPES = (None, "custom")
"""Types of tools that a client defines."""


@attrs.define
class ToolShelf:
    """Callable tools of a request, which its conversation may change.

    Args:
        offered: Tools by name that the prompt starts with.
        deferred: Tools by name that are callable only once the conversation references them.
        ignored: Names of tools that only Anthropic's server can run; they are never callable.
    """

    offered: dict[str, Tool] = attrs.field(factory=dict)
    deferred: dict[str, Tool] = attrs.field(factory=dict)
    ignored: set[str | None] = attrs.field(factory=set)
    _loaded: dict[str, Tool] = attrs.field(init=False, factory=dict)
    _withdrawn: set[str] = attrs.field(init=False, factory=set)

    def load(self, name: str) -> Tool | None:
        """Make a tool callable that the conversation references.

        Returns:
            The tool if its definition is not in the prompt yet.

        Raises:
            KeyError: There is no tool of that name.
        """
        self._withdrawn.discard(name)
        if name in self.offered or name in self._loaded:
            return None
        return self.add(self.deferred[name])

    def add(self, tool: Tool) -> Tool:
        """Make a tool callable that the conversation defines."""
        self._withdrawn.discard(tool.name)
        self._loaded[tool.name] = attrs.evolve(tool, described=False)
        return tool

    def withdraw(self, name: str) -> None:
        """Make a tool uncallable.

        Raises:
            KeyError: There is no tool of that name.
        """
        if name in self.ignored:
            return
        if not any(name in tools for tools in (self.offered, self.deferred, self._loaded)):
            raise KeyError(name)
        self._withdrawn.add(name)

    def tools(self) -> tuple[Tool, ...]:
        """Return the tools that the prompt describes."""
        return (*self.offered.values(), *self._loaded.values())

    def choice(self, choice: ToolChoice) -> ToolChoice:
        """Return the choice, limited to the tools that are callable."""
        if not self._withdrawn:
            return choice
        names = tuple(tool.name for tool in self.tools() if tool.name not in self._withdrawn)
        return attrs.evolve(choice, allowed=names) if names else ToolChoice("none")

    def can_call(self, name: str | None) -> bool:
        """Return whether a tool may be called."""
        return name not in self._withdrawn and any(tool.name == name for tool in self.tools())


def parse_tools(tools: Sequence[ToolParam]) -> ToolShelf:
    """Return the tools of a request, without those that only Anthropic's server can run or describe.

    Raises:
        ProblemError: 400 that names the field.
    """
    shelf, left_out = ToolShelf(), list[str]()
    for index, wire in enumerate(tools):
        field = f"tools[{index}]"
        tool = parse_tool(wire, field)
        if tool is None:
            left_out.append(wire.type or "")
            shelf.ignored.add(wire.name)
            continue
        if tool.name in shelf.offered or tool.name in shelf.deferred:
            detail = f"`{field}.name` is {tool.name[:80]!r}, which another tool already has."
            raise invalid(detail, f"{field}.name")
        (shelf.deferred if wire.defer_loading else shelf.offered)[tool.name] = tool
    log_left_out(left_out)
    return shelf


def check_tools(tools: Sequence[ToolParam], choice: ToolChoiceParam | None) -> None:
    """Make sure that a request does not offer server tools alone.

    Raises:
        ProblemError: 400 that names the first of them.
    """
    if choice is not None and choice.type == "none":
        return
    if tools and all(wire.type not in _OWN_TYPES for wire in tools):
        raise none_left(tools[0].type or "")


def parse_tool(wire: ToolParam, field: str) -> Tool | None:
    """Return one tool; None for a type to ignore, since agents always send tools of such types.

    Raises:
        ProblemError: 400 that names the field.
    """
    if wire.type not in _OWN_TYPES:
        return None
    if wire.name is None or wire.input_schema is None:
        raise missing(f"{field}.{'name' if wire.name is None else 'input_schema'}")
    if not wire.name:
        raise invalid(f"`{field}.name` is empty.", f"{field}.name")
    if wire.allowed_callers is not None and "direct" not in wire.allowed_callers:
        name = f"{field}.allowed_callers"
        detail = f"`{name}` must include 'direct': only the model itself calls tools here."
        raise invalid(detail, name, "unsupported_parameter")
    param = f"{field}.input_schema"
    return Tool(wire.name, _description(wire), wire.input_schema, wire.strict or False, param=param)


def parse_tool_choice(wire: ToolChoiceParam | None, shelf: ToolShelf) -> ToolChoice:
    """Return the tool choice of a request, limited to the tools that its conversation leaves callable.

    Raises:
        ProblemError: 400 that names the field.
    """
    match wire.type if wire else "auto":
        case "auto":
            return shelf.choice(ToolChoice())
        case "none":
            return ToolChoice("none")
        case "any":
            if not any(shelf.can_call(tool.name) for tool in shelf.tools()):
                detail = "`tool_choice` is 'any', but there is no tool that could be called."
                raise invalid(detail, "tool_choice")
            return shelf.choice(ToolChoice("required"))
        case "tool":
            return _named(wire.name if wire else None, shelf)
    detail = "`tool_choice.type` must be 'auto', 'any', 'tool' or 'none'."
    raise invalid(detail, "tool_choice.type")


def _named(name: str | None, shelf: ToolShelf) -> ToolChoice:
    if not name:
        raise missing("tool_choice.name")
    if not shelf.can_call(name):
        detail = f"`tool_choice.name` is {name[:80]!r}, which is not among the tools on offer."
        raise invalid(detail, "tool_choice.name")
    return ToolChoice("named", name)


def _description(wire: ToolParam) -> str:
    description = wire.description or ""
    if not wire.input_examples:
        return description
    examples = "\n".join(json.dumps(example, ensure_ascii=False) for example in wire.input_examples)
    return f"{description}\n\nExamples of input:\n{examples}".strip()
