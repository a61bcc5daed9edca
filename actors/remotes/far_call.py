"""The interface of a remote's protocol to the connection: a call, and the reader of its answer."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterator
from typing import Any

import attrs

from greenroom.schemas.events.events import Finished, FinishReason, InferenceEvent, Timing, Usage
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


class FarError(Exception):
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
            BrokenAnswer, FarError: It is none of the protocol, or reports an error.
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
        FarError: There is one.
    """
    error = data.get("error")
    if not error and data.get("type") == "error":
        error = data
    if error:
        members = error if isinstance(error, dict) else {}
        code = members.get("code") or members.get("type") or "error"
        text = members.get("message") or (error if isinstance(error, str) else "")
        raise FarError(str(code)[:100], str(text)[:500])


def data_url(part: ImagePart | DocumentPart) -> str:
    kind = (
        "application/pdf" if isinstance(part, DocumentPart) else f"image/{image_format(part.data) or 'png'}"
    )
    return f"data:{kind};base64,{base64.b64encode(part.data).decode()}"


def audio_format(part: AudioPart) -> str:
    """Return OpenAI's name for the format of a recording."""
    return "wav" if part.data[:4] == b"RIFF" else "mp3"


def parameters_of(request: InferenceRequest) -> dict[str, Any]:
    """Return the generation parameters that the request or its profile sets."""
    return {**request.defaults, **request.overrides}


def count_of(value: Any) -> int:
    """Return a number of tokens that a remote reports; 0 for what is none."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return max(0, min(int(value), 2**53)) if is_number else 0


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
    """Return the objects of a list; none for null.

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

    def add(self, text: str) -> None:
        if self.size < MAX_RAW:
            self.parts.append(text)
            self.size += len(text)

    def finish(self, reason: FinishReason, usage: Usage, index: int = 0, stop: str | None = None) -> Finished:
        return Finished(reason, usage, Timing(), stop, index, raw="".join(self.parts))


def as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
