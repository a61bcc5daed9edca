"""What clients of `POST /v1/audio/transcriptions` and `/v1/audio/translations` send beside the file."""

from __future__ import annotations

import attrs


@attrs.frozen
class TranscriptionRequest:
    """The fields of the form, by the names that OpenAI documents.

    Args:
        timestamp_granularities: `word` and `segment`.
    """

    model: str
    language: str | None = None
    prompt: str = ""
    response_format: str = "json"
    temperature: float | None = None
    timestamp_granularities: tuple[str, ...] = ()
    stream: bool = False

    @property
    def wants_words(self) -> bool:
        """Whether words get their times."""
        return "word" in self.timestamp_granularities

    @property
    def wants_segments(self) -> bool:
        """Whether segments are shown, as they are where nothing else is asked for."""
        return not self.timestamp_granularities or "segment" in self.timestamp_granularities
