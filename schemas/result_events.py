"""What comes back from models that do not chat: vectors, scores, speech, segments of a transcript."""

from __future__ import annotations

import attrs


@attrs.frozen
class Vector:
    """The embedding of text `index` of the request.

    Args:
        values: Little-endian float32, `[dimensions]`.
    """

    values: bytes = attrs.field(repr=False)
    index: int = 0


@attrs.frozen
class Score:
    """How well document `index` of the request answers its query.

    Args:
        value: 0 to 1.
    """

    value: float
    index: int = 0


@attrs.frozen
class AudioChunk:
    """A piece of speech, in the order in which it is heard.

    Args:
        samples: One channel of little-endian 16-bit integers, `[samples]`.
        rate: Samples a second.
    """

    samples: bytes = attrs.field(repr=False)
    rate: int
    index: int = 0


@attrs.frozen
class Word:
    """A spoken word.

    Args:
        start: Seconds from the beginning of the recording; `end` likewise.
        probability: 0 to 1.
    """

    text: str
    start: float
    end: float
    probability: float


@attrs.frozen
class Segment:
    """A piece of a transcript, in the order in which it is spoken; every number is finite.

    Args:
        start: Seconds from the beginning of the recording; `end` likewise.
        tokens: Ids of its text.
        words: With their times, if they were asked for.
        avg_logprob: Mean natural logarithm of its tokens' probabilities.
        compression_ratio: Of its text by gzip; a high one tells of repetition.
        no_speech_prob: That nothing is said in it, 0 to 1.
        temperature: At which it was sampled.
        seek: Where the model's window begins, in frames of 10 ms.
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
    """What is known of a recording: once it has been opened, and its language found.

    Args:
        duration: Seconds.
        language: Spoken, as ISO 639-1 has it; None if the model does not tell.
    """

    duration: float
    language: str | None = None
