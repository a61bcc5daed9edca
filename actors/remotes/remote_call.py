"""The interface of a remote's protocol to the connection: a call, and the reader of its answer."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterator
from typing import Any

import attrs

from greenroom.schemas.events.events import (
    Finished,
    FinishReason,
    InferenceEvent,
    TextDelta,
    Timing,
    TokenLogprob,
    Usage,
)
from greenroom.schemas.file_formats import image_format
from greenroom.schemas.messages.messages import AudioPart, DocumentPart, ImagePart, JsonObject
from greenroom.schemas.messages.requests import InferenceRequest
from greenroom.schemas.problems import Problem, ProblemError

MAX_RAW = 1_000_000
"""Most characters of an answer that are kept beside its events."""
MAX_CHOICES = 128
MAX_CALLS = 1_024


class BrokenAnswer(Exception):
    """An error for an answer that does not have the documented shape; its text has nothing of the answer."""


class ReportedError(Exception):
    """An error that the remote reports within an answer.

    Args:
        code: Its type or code, for the choice of a problem.
        text: Its message, which may quote a prompt: for the client alone.
    """

    def __init__(self, code: str, text: str) -> None:
        super().__init__(code)
        self.code, self.text = code, text


class Reader:
    """Reads the answer to one call, sans-IO."""

    finished = False
    """True once the answer is complete."""

    def event(self, data: JsonObject) -> Iterator[InferenceEvent]:
        """Yield the events of one server-sent event.

        Raises:
            BrokenAnswer, ReportedError: It is none of the protocol, or reports an error.
        """
        raise BrokenAnswer("events where none are expected")

    def whole(self, data: JsonObject) -> Iterator[InferenceEvent]:
        """Yield the events of a complete answer in JSON; it raises as `event` does."""
        raise_reported(data)
        raise BrokenAnswer("JSON where none is expected")

    def piece(self, data: bytes) -> Iterator[InferenceEvent]:
        """Yield the events of some bytes of an answer that is neither JSON nor events."""
        raise BrokenAnswer("an answer of another type")

    def end(self) -> Iterator[InferenceEvent]:
        """Yield the events that the end of the bytes brings."""
        return iter(())


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


def raise_reported(data: JsonObject) -> None:
    """Raise the error that a body holds, in OpenAI's or Anthropic's shape.

    Raises:
        ReportedError: There is one.
    """
    error = data.get("error")
    if not error and data.get("type") == "error":
        error = data
    if error:
        raise ReportedError(*words_of(error))


def words_of(error: Any) -> tuple[str, str]:
    """Return the type and code of an error, and its message, which may quote a prompt."""
    members = error if isinstance(error, dict) else {}
    code = " ".join(str(members[name])[:100] for name in ("type", "code") if members.get(name))
    text = members.get("message") or (error if isinstance(error, str) else "")
    return code or "error", str(text)[:500]


def data_url(part: ImagePart | DocumentPart) -> str:
    kind = (
        "application/pdf" if isinstance(part, DocumentPart) else f"image/{image_format(part.data) or 'png'}"
    )
    return f"data:{kind};base64,{base64.b64encode(part.data).decode()}"


def audio_part(part: AudioPart) -> dict[str, Any]:
    form = "wav" if part.data[:4] == b"RIFF" else "mp3"
    encoded = base64.b64encode(part.data).decode()
    return {"type": "input_audio", "input_audio": {"data": encoded, "format": form}}


def parameters_of(request: InferenceRequest) -> dict[str, Any]:
    """Return the generation parameters that the request or its profile sets."""
    return {**request.defaults, **request.overrides}


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
    return max(0, min(int(number_of(value) or 0), 2**53))


def members_of(value: Any) -> JsonObject:
    """Return an object of an answer; an empty one for null.

    Raises:
        BrokenAnswer: It is none.
    """
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BrokenAnswer("a value that is no object")
    return value


def items_of(value: Any) -> list[JsonObject]:
    """Return a JSON value as a list of objects; null is an empty list.

    Raises:
        BrokenAnswer: It is no list of objects.
    """
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise BrokenAnswer("a value that is no list of objects")
    return value


def text_of(value: Any) -> str:
    """Return a text; empty for null.

    Raises:
        BrokenAnswer: It is none.
    """
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BrokenAnswer("a value that is no text")
    return value


def index_of(value: Any, most: int) -> int:
    """Return a number of a choice or of a call.

    Raises:
        BrokenAnswer: It is none, or too large.
    """
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < most:
        raise BrokenAnswer("a number of a choice or of a call that is out of range")
    return value


@attrs.define
class Raw:
    """The visible text of a choice, kept for the records of the request."""

    parts: list[str] = attrs.field(factory=list)
    size: int = 0

    def say(self, text: str, index: int = 0, logprobs: tuple[TokenLogprob, ...] = ()) -> Iterator[TextDelta]:
        if self.size < MAX_RAW:
            self.parts.append(text)
            self.size += len(text)
        if text or logprobs:
            yield TextDelta(text, index, logprobs)

    def finish(self, reason: FinishReason, usage: Usage, index: int = 0, stop: str | None = None) -> Finished:
        return Finished(reason, usage, Timing(), stop, index, raw="".join(self.parts))


def as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
