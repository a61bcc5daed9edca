"""The interface of a remote's protocol to the connection: a call, and the reader of its answer."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Collection, Iterator
from typing import Any, TypeVar

import attrs

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
from greenroom.schemas.file_formats import image_format
from greenroom.schemas.messages.generation import GenerationParameters
from greenroom.schemas.messages.messages import AudioPart, DocumentPart, ImagePart, JsonObject
from greenroom.schemas.messages.requests import ChatInput, InferenceRequest
from greenroom.schemas.problems import Problem, ProblemError

MAX_RAW = 1_000_000
"""Most characters of an answer that are kept beside its events."""
MAX_CHOICES = 128
MAX_CALLS = 1_024
MAX_COUNT = 10**10
"""Largest number of tokens that is believed; clients are charged for them."""
T = TypeVar("T")


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


class Reader:
    """Reads the answer to one call, sans-IO.

    Its methods yield the events of one server-sent event, of a complete answer in JSON, of some bytes of an
    answer that is neither, and of the end of the bytes. They raise BrokenAnswer if it is none of the
    protocol, ReportedError if it reports an error in a way of its own.
    """

    finished = False
    """True once the answer is complete, with its last event: what is wrong after that is of no account."""
    most = 64 * 1024
    """Most bytes of a complete answer in JSON, which becomes twenty times as large in memory."""

    def event(self, data: JsonObject) -> Iterator[InferenceEvent]:
        raise BrokenAnswer("events where none are expected")

    def whole(self, data: JsonObject) -> Iterator[InferenceEvent]:
        raise BrokenAnswer("JSON where none is expected")

    def piece(self, data: bytes) -> Iterator[InferenceEvent]:
        raise BrokenAnswer("an answer of another type")

    def end(self) -> Iterator[InferenceEvent]:
        raise BrokenAnswer("an answer that ends before its last event")


@attrs.frozen
class Call:
    """A request to a remote.

    Args:
        path: Path after its base address.
        body: Body in JSON; of a form, its fields.
        file: Path of a file that makes it a form.
        is_binary: True if the answer is neither JSON nor events.
    """

    path: str
    body: JsonObject = attrs.field(repr=False)
    reader: Reader
    file: str | None = None
    is_binary: bool = False


def unsupported(what: str, api: str) -> ProblemError:
    """Return the problem of a request that cannot be expressed in the remote's protocol."""
    detail = f"{what} cannot be asked of a remote with the api '{api}'."
    return ProblemError(Problem(400, "remote_unsupported", detail))


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def media_type(part: ImagePart | DocumentPart) -> str:
    return (
        "application/pdf" if isinstance(part, DocumentPart) else f"image/{image_format(part.data) or 'png'}"
    )


def data_url(part: ImagePart | DocumentPart) -> str:
    return f"data:{media_type(part)};base64,{encoded(part.data)}"


def document_of(part: DocumentPart) -> dict[str, Any]:
    return {"filename": part.name or "document.pdf", "file_data": data_url(part)}


def audio_part(part: AudioPart) -> dict[str, Any]:
    sound = {"data": encoded(part.data), "format": "wav" if part.data[:4] == b"RIFF" else "mp3"}
    return {"type": "input_audio", "input_audio": sound}


def parameters_of(request: InferenceRequest) -> dict[str, Any]:
    """Return the generation parameters that the request or its profile sets."""
    return {**request.defaults, **request.overrides}


def refuse_others(request: InferenceRequest, chat: ChatInput, known: Collection[str], api: str) -> None:
    """Raise ProblemError (400) for what a client has set beyond the `known`: the protocol lacks it."""
    neutral: Any = GenerationParameters()
    names = [name for name, value in request.overrides.items() if value != getattr(neutral, name)]
    of_chat = {
        "chat_template_kwargs": chat.template_options,
        "continue_final_message": chat.continue_final_message,
        "verbosity": chat.verbosity != "medium",
    }
    names += [name for name, is_set in of_chat.items() if is_set]
    if left_out := [f"`{name}`" for name in names if name not in known]:
        raise unsupported(", ".join(left_out), api)


def number_of(value: Any) -> float | None:
    """Return a finite number of an answer; None for what is none."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        found = float(value)
    except OverflowError:  # JSON may have hundreds of digits
        return None
    return found if math.isfinite(found) else None


def count_of(value: Any) -> int:
    """Return a number of tokens that a remote reports; 0 for what is none."""
    return max(0, min(int(number_of(value) or 0), MAX_COUNT))


def typed(value: Any, kind: type[T]) -> T:
    """Return a value of an answer; an empty one for null. Raises BrokenAnswer: It has another type."""
    if value is None:
        return kind()
    if not isinstance(value, kind):
        raise BrokenAnswer("a value of another type")
    return value


def members_of(value: Any, *names: str) -> JsonObject:
    """Return an object of an answer, or the one below these names; it raises as `text_of` does."""
    found = typed(value, dict)
    return members_of(found.get(names[0]), *names[1:]) if names else found


def items_of(value: Any) -> list[JsonObject]:
    return [typed(each, dict) for each in typed(value, list)]


def text_of(value: Any) -> str:
    return typed(value, str)


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
        if self._size < MAX_RAW:
            self._text.append(text_of(text))
            self._size += len(self._text[-1])
        if text or logprobs:
            yield TextDelta(text_of(text), self.index, logprobs)

    def think(self, text: Any) -> Iterator[ReasoningDelta]:
        if text:
            yield ReasoningDelta(text_of(text), self.index)

    def begin_call(self, call: JsonObject, ident: Any, arguments: str = "") -> Iterator[ToolCallDelta]:
        """Yield the beginning of the next call, whose members have its name."""
        name, number = text_of(call.get("name")), self.calls
        if not name or number >= MAX_CALLS:
            raise BrokenAnswer("a call without a name, or one too many")
        self.calls += 1
        yield ToolCallDelta(number, text_of(ident) or f"call_{number}", name, arguments, self.index)

    def go_on(self, number: int, arguments: Any) -> Iterator[ToolCallDelta]:
        if arguments:
            yield ToolCallDelta(number, arguments=text_of(arguments), index=self.index)

    def finish(self, usage: Usage) -> Finished:
        if self.reason is None:
            raise BrokenAnswer("an answer that ends before its finish reason")
        text = "".join(self._text)
        return Finished(self.reason, usage, Timing(), self.stop, self.index, raw=text)


def as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
