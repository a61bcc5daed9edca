"""One turn of a model in a loop of tools: what it wrote, which calls are whose, and what they become."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from greenroom.schemas.events.events import (
    Finished,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolLimit,
    Usage,
)
from greenroom.schemas.events.result_events import ToolResult, ToolsListed
from greenroom.schemas.messages.messages import (
    ContentPart,
    ImagePart,
    Message,
    TextPart,
    Tool,
    ToolCall,
    ToolChoice,
)
from greenroom.schemas.protocols.tools_protocol import PythonTool, ToolLoop, ToolSource

RESULT_TOKENS = 8_000
"""Most tokens of a call's result that a model reads, each counted as four bytes; fewer in short contexts."""
MOST_REPEATED = 3  # Number of equal calls, by name and arguments, at which a loop ends
_BYTES_PER_TOKEN = 4
_SHORTEST = 200
_ODD = re.compile(r"[^\w.:/-]")
_UNCHECKED = frozenset({"pattern", "patternProperties", "unevaluatedItems", "unevaluatedProperties"})
_CHECK_SECONDS = 0.25  # Longest computation of a check; references to each other can double it many times


@attrs.frozen
class OwnTool:
    """A tool that this server calls. `tool`: tool as the model sees it; its name differs from `name` where
    two servers have one name.
    """

    tool: Tool
    name: str
    target: ToolSource | PythonTool

    @property
    def server(self) -> str:
        """The label of its server; empty for a function."""
        return self.target.label if isinstance(self.target, ToolSource) else ""


def join_tools(
    declared: Sequence[Tool], loop: ToolLoop, lists: Mapping[str, ToolsListed]
) -> dict[str, OwnTool]:
    """Return the tools that this server calls by the name under which the model sees them."""
    taken = {tool.name for tool in declared}
    joined: dict[str, OwnTool] = {}
    for tool, function in loop.functions:
        joined[tool.name] = OwnTool(attrs.evolve(tool, held=True), tool.name, function)
    for source in loop.sources:
        for tool in lists[source.label].tools if source.label in lists else ():
            name = _ODD.sub("_", tool.name)[:64] or "_"  # markers of a format are no names
            name = f"{source.label}__{name}" if name in taken or name in joined else name
            while name in taken or name in joined:
                name += "_"
            joined[name] = OwnTool(attrs.evolve(tool, name=name, held=True), tool.name, source)
    return joined


class LoopRules:
    """The limits of a loop: decides about calls, and makes none."""

    def __init__(self, choice: ToolChoice, loop: ToolLoop) -> None:
        self._asked_choice = choice
        self._loop = loop
        self._made: Counter[tuple[str, str]] = Counter()
        self._calls = 0

    @property
    def _is_used_up(self) -> bool:
        return self._loop.max_calls is not None and self._calls >= self._loop.max_calls

    def choice(self, turn: int, own: Mapping[str, OwnTool]) -> ToolChoice:
        """Return the choice of tools for a turn: what must be called, must be called once."""
        choice, chosen = self._asked_choice, self._loop.chosen
        if self._is_used_up and (turn > 1 or self._calls):
            return ToolChoice("none")
        names = [
            name for name, each in own.items() if chosen & {(each.server, each.name), (each.server, None)}
        ]
        if chosen and choice.allowed is None:
            return ToolChoice("required", allowed=tuple(names)) if turn == 1 and names else choice
        if choice.allowed is not None:
            choice = attrs.evolve(choice, allowed=(*choice.allowed, *names))
            if not choice.allowed:
                return ToolChoice("none")
        if turn == 1 or choice.mode in ("auto", "none"):
            return choice
        return ToolChoice(allowed=choice.allowed)

    def limit(self, calls: Sequence[ToolCall], turn: int) -> ToolLimit:
        """Return the limit at which a turn with these calls ends the answer; empty if none."""
        made = [(call.name, _canonical(call.arguments)) for call in calls]
        self._made.update(made)
        if any(self._made[each] >= MOST_REPEATED for each in made):
            return "repeated_call"
        return "max_turns" if calls and turn >= self._loop.max_turns else ""

    def take(self, call: ToolCall, tool: OwnTool) -> tuple[dict[str, Any], str]:
        """Count a call, and return its arguments; with the reason if it must not be made."""
        if self._is_used_up:
            return {}, "The call was not made: this answer may make no more. Answer without tools."
        arguments, fault = find_fault(call.arguments, tool.tool.parameters)
        self._calls += not fault
        return arguments, fault


class Turn:
    """The output of one generation, collected while it streams. `first_call`: index of the next call of the
    client's tools; `idents`: ids of all calls before, to which its own are added.
    """

    def __init__(self, own: Mapping[str, OwnTool], first_call: int, idents: set[str]) -> None:
        self._own = own
        self._idents = idents
        self._texts: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[int, tuple[ToolCall, list[str]]] = {}
        self._shown: dict[int, int] = {}
        self._first_call = first_call

    def add(self, event: TextDelta | ReasoningDelta | ToolCallDelta) -> ToolCallDelta | None:
        """Collect a delta; of a call of the client's, return the delta that the client gets."""
        match event:
            case TextDelta(text):
                self._texts.append(text)
            case ReasoningDelta(text):
                self._reasoning.append(text)
            case ToolCallDelta(call, ident, name, arguments):
                if ident is not None:
                    while ident in self._idents:  # a remote may number the calls of each answer anew
                        ident += "_"
                    self._idents.add(ident)
                    event = attrs.evolve(event, id=ident)
                    self._calls[call] = ToolCall(ident, name or "", ""), []
                    if name not in self._own:
                        self._shown[call] = self._first_call + len(self._shown)
                self._calls[call][1].append(arguments)
                if call in self._shown:
                    return attrs.evolve(event, call=self._shown[call])
        return None

    @property
    def shown_calls(self) -> int:
        """The number of calls that the client runs."""
        return len(self._shown)

    @property
    def calls(self) -> list[ToolCall]:
        return [attrs.evolve(call, arguments="".join(parts)) for call, parts in self._calls.values()]

    @property
    def own_calls(self) -> list[ToolCall]:
        """The calls that this server runs, in order."""
        return [call for call in self.calls if call.name in self._own]

    def message(self) -> Message:
        text, reasoning = "".join(self._texts), "".join(self._reasoning)
        content = (TextPart(text),) if text else ()
        return Message("assistant", content, reasoning=reasoning or None, tool_calls=tuple(self.calls))


def result_message(call: ToolCall, result: ToolResult, *, room: int, sees: bool) -> Message:
    """Return a result as a message of the history. `room`: most tokens of its text; `sees`: True if the model
    takes images.
    """
    parts: list[ContentPart] = []
    left = room * _BYTES_PER_TOKEN
    for part in result.content:
        if isinstance(part, TextPart):
            text = _cut(part.text, left)
            left = max(_SHORTEST, left - len(text.encode("utf-8", "replace")))
            parts.append(TextPart(text))
        elif isinstance(part, ImagePart) and sees:
            parts.append(part)
        else:
            parts.append(TextPart("[a file that this model cannot take]"))
    if all(isinstance(part, TextPart) for part in parts):
        parts = [TextPart("\n".join(part.text for part in parts if isinstance(part, TextPart)))]
    return Message("tool", tuple(parts), tool_call_id=call.id, name=call.name)


def _cut(text: str, room: int) -> str:
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= room:
        return text
    kept = encoded[:room].decode("utf-8", "ignore")
    return f"{kept}\n[The result was cut here: {len(encoded) - room:,} of its {len(encoded):,} bytes follow.]"


def answers_to(messages: Sequence[Message], added: Mapping[str, Message]) -> tuple[Message, ...]:
    """Return a conversation with results right behind the calls that they answer."""
    joined: list[Message] = []
    waiting: list[Message] = []
    for message in messages:
        if message.role != "tool":
            joined += waiting
            waiting = []
        joined.append(message)
        waiting += [added[call.id] for call in message.tool_calls if call.id in added]
    return (*joined, *waiting)


def find_fault(arguments: str, schema: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Return the arguments of a call, and what is wrong with them; empty if nothing is.

    What could make a hostile schema last for ever, such as patterns, is left out: its server checks it.
    """
    try:
        value = json.loads(arguments or "{}")
    except (ValueError, RecursionError) as error:
        return {}, f"The arguments are not JSON: {error}."
    if not isinstance(value, dict):
        return {}, "The arguments must be a JSON object."
    try:
        from jsonschema import Draft202012Validator, validators
        from referencing import Registry
    except ImportError:  # only functions are called without the extra
        return value, ""
    has_patterns = "patternProperties" in json.dumps(schema, default=str)
    left_out = _UNCHECKED | ({"additionalProperties"} if has_patterns else set())
    until = time.thread_time() + _CHECK_SECONDS

    def within_limits(name: str, check: Callable[..., Any]) -> Callable[..., Any]:
        def run(*given: Any) -> Any:
            if time.thread_time() > until:
                raise TimeoutError
            return None if name in left_out else check(*given)

        return run

    checks = {name: within_limits(name, check) for name, check in Draft202012Validator.VALIDATORS.items()}
    checker = validators.extend(Draft202012Validator, checks)
    checker.evolve = attrs.evolve  # its own would leave these limits where a part names another `$schema`
    try:
        fault = next(iter(checker(dict(schema), registry=Registry()).iter_errors(value)), None)
    except Exception:
        return value, ""  # the schema itself is at fault, and the server knows what it takes
    return (
        value,
        "" if fault is None else f"The arguments do not match the tool's schema: {fault.message[:500]}",
    )


def join_ends(before: Finished | None, last: Finished) -> Finished:
    """Return the end of an answer of several turns, with the sum of their usage."""
    if before is None:
        return last
    timing = {
        field.name: getattr(before.timing, field.name) + getattr(last.timing, field.name)
        for field in attrs.fields(type(last.timing))
    }
    parts = before.explanation, last.explanation
    explanation = parts[0].plus(parts[1]) if parts[0] is not None and parts[1] is not None else parts[1]
    usage: Usage = before.usage.with_request(last.usage)
    return attrs.evolve(
        last,
        usage=usage,
        timing=attrs.evolve(last.timing, **timing),
        raw=f"{before.raw}\n{last.raw}" if last.raw else before.raw,
        explanation=explanation,
    )


def _canonical(arguments: str) -> str:
    try:
        return json.dumps(json.loads(arguments or "{}"), sort_keys=True)
    except (ValueError, RecursionError):
        return arguments
