"""Result events of models that do not chat: vectors, scores, speech, transcript segments."""

from __future__ import annotations

from collections.abc import Callable

import attrs


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
    """The relevance of document `index` to the request's query.

    Args:
        value: Score from 0 to 1.
    """

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
        temperature: Sampling temperature.
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
