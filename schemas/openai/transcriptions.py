"""Form fields of `POST /v1/audio/transcriptions` and `/v1/audio/translations`, besides the file."""

from __future__ import annotations

import attrs


@attrs.frozen
class TranscriptionRequest:
    """The form fields of a transcription, under OpenAI's names.

    Args:
        timestamp_granularities: Requested timestamps: `word`, `segment` or both.
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
        return "word" in self.timestamp_granularities

    @property
    def wants_segments(self) -> bool:
        """True if segments are requested, as they are by default."""
        return not self.timestamp_granularities or "segment" in self.timestamp_granularities
