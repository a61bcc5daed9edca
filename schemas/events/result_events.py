"""Result events of models that do not chat, and events of tools that the server itself calls."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from greenroom.schemas.messages.messages import ContentPart, TextPart, Tool


def _counted(what: str, size: int) -> Callable[[bytes], str]:
    """Return a representation that tells how many values of `size` bytes there are."""
    return lambda values: f"<{len(values) // size:,} {what}>"


@attrs.frozen
class Vector:
    """The embedding of text `index` of the request.

    Args:
        values: Vector as little-endian float32, `[dimensions]`.
    """

    values: bytes = attrs.field(repr=_counted("numbers", 4))
    index: int = 0


@attrs.frozen
class Score:
    """The relevance of document `index` to the request's query. `value`: score from 0 to 1."""

    value: float
    index: int = 0


@attrs.frozen
class AudioChunk:
    """A piece of generated speech; pieces are in playback order.

    Args:
        samples: Mono samples as little-endian 16-bit integers, `[samples]`.
        rate: Sample rate in Hz.
    """

    samples: bytes = attrs.field(repr=_counted("samples", 2))
    rate: int
    index: int = 0


@attrs.frozen
class Word:
    """A transcribed word.

    Args:
        start: Start in seconds from the beginning of the recording; `end` likewise.
        probability: Probability from 0 to 1.
    """

    text: str
    start: float
    end: float
    probability: float


@attrs.frozen
class Segment:
    """A segment of a transcript; segments are in spoken order, and every number is finite.

    Args:
        start: Start in seconds from the beginning of the recording; `end` likewise.
        tokens: Token ids of the text.
        words: Words with timestamps, if requested.
        avg_logprob: Mean log-probability (natural) of its tokens.
        compression_ratio: Compression ratio of the text by gzip; a high one indicates repetition.
        no_speech_prob: Probability, 0 to 1, that the segment contains no speech.
        seek: Start of the model's window, in frames of 10 ms.
    """

    text: str
    start: float
    end: float
    tokens: tuple[int, ...] = ()
    words: tuple[Word, ...] = ()
    avg_logprob: float = 0.0
    compression_ratio: float = 0.0
    no_speech_prob: float = 0.0
    temperature: float = 0.0
    seek: int = 0
    index: int = 0


@attrs.frozen
class Recording:
    """Properties of a recording, sent once it is opened and again once its language is detected.

    Args:
        duration: Duration in seconds.
        language: ISO 639-1 code of the spoken language; None if the model does not report it.
    """

    duration: float
    language: str | None = None


# Events of tools that the server itself calls, between the events of a model's turns.
#
# ToolsListed*  …  (ServerCall  ToolResult)*  ApprovalWanted*


@attrs.frozen
class ToolsListed:
    """The tools of a server that a request may use.

    Args:
        error: Reason why there are none; empty if the list came.
    """

    server: str
    tools: tuple[Tool, ...] = ()
    error: str = ""


@attrs.frozen
class ServerCall:
    """The call of a tool that the server itself runs; it begins now.

    Args:
        server: Label of the tool's MCP server; empty for a function of the program around this library.
        arguments: JSON text of an object.
        approval: Id of the request for approval that the user has granted; None if none was needed.
    """

    id: str
    server: str
    name: str
    arguments: str
    approval: str | None = None


@attrs.frozen
class ApprovalWanted:
    """A call that waits for the user's approval, in a later request."""

    id: str
    server: str
    name: str
    arguments: str


@attrs.frozen
class ToolResult:
    """The result of a call.

    Args:
        failed: True if the tool says that it failed, or could not be asked; `content` says why.
        seconds: Time that the call took.
    """

    id: str
    content: tuple[ContentPart, ...] = attrs.field(repr=False)
    failed: bool = False
    seconds: float = 0.0

    @property
    def text(self) -> str:
        """The text parts, a line each, and a word for each image."""
        return "\n".join(part.text if isinstance(part, TextPart) else "[image]" for part in self.content)


ToolEvent = ToolsListed | ServerCall | ApprovalWanted | ToolResult
