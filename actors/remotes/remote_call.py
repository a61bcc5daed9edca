"""The interface of a remote's protocol to the connection: a call, and the reading of its answer, sans-IO."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Literal, TypeVar

import attrs
import msgspec

from greenroom.schemas.events.events import (
    Finished,
    FinishReason,
    InferenceEvent,
    ReasoningDelta,
    TextDelta,
    Timing,
    TokenLogprob,
    ToolCallDelta,
    Usage,
)
from greenroom.schemas.messages.messages import JsonObject
from greenroom.schemas.messages.requests import InferenceRequest
from greenroom.schemas.problems import Problem, ProblemError

MAX_RAW = 1_000_000
"""Most characters of an answer that are kept beside its events."""
MAX_LINE = 4 * 1024 * 1024
"""Longest line of a stream of events, in bytes."""
MAX_CALLS = 1_024
MAX_COUNT = 10**10
"""Largest number that is believed: clients are charged for tokens, and JSON may have hundreds of digits."""
_LINE_ENDS = re.compile(rb"\r\n|\r|\n")
T = TypeVar("T")
Events = Iterator[InferenceEvent]


class BrokenAnswer(Exception):
    """An error for an answer that does not have the documented shape; its text has nothing of the answer."""


class ReportedError(Exception):
    """An error that the remote reports within an answer, as an object or as a text.

    Attributes:
        code: Its type and code, for the choice of a problem.
        text: Its message, which may quote a prompt: for the client alone.
    """

    def __init__(self, error: Any) -> None:
        members = error if isinstance(error, dict) else {"message": error}
        # Only of plain values: the text of a deep list may exceed the stack.
        said = {name: str(value) for name, value in members.items() if value and isinstance(value, str | int)}
        self.code = " ".join(said[name][:100] for name in ("type", "code") if name in said)
        super().__init__(self.code)
        text = said.get("message", "")[:500]
        self.text = "".join(each if each.isprintable() else " " for each in text)


@attrs.define
class CallFailure(Exception):
    """An error of a call.

    Args:
        problem: Problem for the client; that of a fault of the remote has none of its words.
        reason: Reason in a few words, for operators.
        counts: True if the breaker counts it, False if the remote has answered; None if nothing is known.
        pause: Seconds in which the remote wants no requests; 0 for none.
        detail: Further words that only the log may tell.
    """

    problem: Problem
    reason: str
    counts: bool | None = True
    pause: float = 0.0
    detail: str = ""


def _broken_off() -> Events:
    raise BrokenAnswer("an answer that ends before its last event")


@attrs.frozen
class Call:
    """A request to a remote.

    Args:
        path: Path after its base address.
        body: Body in JSON; of a form, its fields.
        read: Function that yields the events of a piece of the answer: of a server-sent event, of the whole
            in JSON, or of some bytes of sound. It raises BrokenAnswer for what is none of the protocol, and
            ReportedError for an error that is reported in a way of its own.
        end: Function that yields those of the end of the pieces, likewise.
        most: Most bytes of a whole in JSON, which becomes twenty times as large in memory.
        file: Path of a file that makes it a form.
    """

    path: str
    body: JsonObject = attrs.field(repr=False)
    read: Callable[[Any], Events]
    form: Literal["events", "json", "sound"] = "json"
    end: Callable[[], Events] = _broken_off
    most: int = 64 * 1024
    file: str | None = None


class Answer:
    """Reads the answer to a call.

    Args:
        take: Callback for its events; must not block.

    Attributes:
        finished: True once its last event has come: what is wrong after that is of no account.
    """

    def __init__(self, call: Call, take: Callable[[InferenceEvent], None]) -> None:
        self.call, self._take = call, take
        self._rest = bytearray()
        self.finished = False

    def feed(self, data: bytes) -> bool:
        """Read the next bytes of sound, or of events in lines that end with LF, CR LF or CR; return whether
        the answer is complete. Raises BrokenAnswer: They are no such stream, or a line is too long.
        """
        if self.call.form == "sound":
            return self.deliver(self.call.read(data))
        self._rest += data
        lines: list[bytes] = []
        if _LINE_ENDS.search(data) is not None:
            *lines, rest = _LINE_ENDS.split(bytes(self._rest))
            self._rest = bytearray(rest)
        for line in lines:
            content = line[5:].strip() if line.startswith(b"data:") else b""
            if content and not self.finished:
                is_end = content == b"[DONE]"
                self.deliver(self.call.end() if is_end else self.call.read(json_object(content)))
        if len(self._rest) > MAX_LINE:
            raise BrokenAnswer(f"a line of more than {MAX_LINE:,} bytes")
        return self.finished

    def deliver(self, events: Events) -> bool:
        for event in events:
            self.finished = self.finished or isinstance(event, Finished)
            self._take(event)
        return self.finished


def decoded(content: bytes) -> Any:
    """Return a value in JSON. Raises BrokenAnswer: It is none."""
    with suppress(ValueError, RecursionError):
        return msgspec.json.decode(content)
    try:  # what is no JSON to the strict reader: lone surrogates, which could not be sent on, and `NaN`
        return json.loads(as_json(json.loads(content)))
    except (ValueError, RecursionError):
        raise BrokenAnswer("broken JSON") from None


def json_object(content: bytes) -> dict[str, Any]:
    """Return an object in JSON. Raises BrokenAnswer: It is none. ReportedError: It is an error."""
    found = decoded(content)
    if not isinstance(found, dict):
        raise BrokenAnswer("JSON that is no object")
    if error := found.get("error") or (found.get("type") == "error" and found):
        raise ReportedError(error)
    return found


def as_json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")


def unsupported(what: str, api: str) -> ProblemError:
    """Return the problem of a request that cannot be expressed in the remote's protocol."""
    detail = f"{what} cannot be asked of a remote with the api '{api}'."
    return ProblemError(Problem(400, "remote_unsupported", detail))


def parameters_of(request: InferenceRequest) -> dict[str, Any]:
    """Return the generation parameters that the request or its profile sets."""
    return {**request.defaults, **request.overrides}


def given(body: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if value is not None}


def number_of(value: Any) -> float | None:
    """Return a finite number of an answer, cut to what is believed; None for what is none."""
    is_number = type(value) in (int, float) and value - value == 0
    return float(max(-MAX_COUNT, min(value, MAX_COUNT))) if is_number else None


def count_of(value: Any) -> int:
    """Return a number of tokens that a remote reports; 0 for what is none."""
    return max(0, int(number_of(value) or 0))


def typed(value: Any, kind: type[T]) -> T:
    """Return a value of an answer; an empty one for null. Raises BrokenAnswer: It has another type."""
    if value is None:
        return kind()
    if not isinstance(value, kind):
        raise BrokenAnswer("a value of another type")
    return value


def member(data: Any, path: str, kind: type[T]) -> T:
    """Return a member of an object, or one below it (`message.usage`); it raises as `typed` does."""
    *above, name = path.split(".")
    for each in above:
        data = typed(data.get(each), dict)
    return typed(data.get(name), kind)


def items_of(data: JsonObject, name: str) -> list[JsonObject]:
    return [typed(each, dict) for each in member(data, name, list)]


def index_of(value: Any, most: int) -> int:
    """Return a number of a choice or of a call. Raises BrokenAnswer: It is none, or too large."""
    if type(value) is not int or not 0 <= value < most:
        raise BrokenAnswer("a number of a choice or of a call that is out of range")
    return value


@attrs.define
class Choice:
    """One answer as it is read: what its events have in common in all protocols."""

    index: int = 0
    reason: FinishReason | None = None
    stop: str | None = None
    calls: int = 0
    _text: list[str] = attrs.field(factory=list)
    _size: int = 0

    def say(self, text: Any, logprobs: tuple[TokenLogprob, ...] = ()) -> Iterator[TextDelta]:
        said = typed(text, str)
        if self._size < MAX_RAW:
            self._text.append(said)
            self._size += len(said)
        if said or logprobs:
            yield TextDelta(said, self.index, logprobs)

    def think(self, text: Any) -> Iterator[ReasoningDelta]:
        if text:
            yield ReasoningDelta(typed(text, str), self.index)

    def begin_call(self, call: JsonObject, ident: Any, arguments: str = "") -> Iterator[ToolCallDelta]:
        """Yield the beginning of the next call, whose members have its name."""
        name, number = member(call, "name", str), self.calls
        if not name or number >= MAX_CALLS:
            raise BrokenAnswer("a call without a name, or one too many")
        self.calls += 1
        own = f"call_{uuid.uuid4().hex[:24]}"  # some tell no id, but a conversation has many calls
        yield ToolCallDelta(number, typed(ident, str) or own, name, arguments, self.index)

    def go_on(self, number: int, arguments: Any) -> Iterator[ToolCallDelta]:
        if arguments:
            yield ToolCallDelta(number, arguments=typed(arguments, str), index=self.index)

    def finish(self, usage: Usage) -> Finished:
        if self.reason is None:
            raise BrokenAnswer("an answer that ends before its finish reason")
        return Finished(self.reason, usage, Timing(), self.stop, self.index, raw="".join(self._text))
