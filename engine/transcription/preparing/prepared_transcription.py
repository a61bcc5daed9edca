"""A recording that its adapter has looked at, ready to be transcribed."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import attrs

from greenroom.engine.audio.samples import AudioFacts


@attrs.frozen
class PreparedTranscription:
    """What an engine needs to transcribe; fulfils `PreparedInput`.

    Args:
        language: Spoken, as the model calls it; None has it detected.
        temperature: None lets the model begin at 0 and rise where it fails.
        param: What the client calls the file, for errors.
    """

    file: Path
    facts: AudioFacts
    task: Literal["transcribe", "translate"] = "transcribe"
    language: str | None = None
    prompt: str = ""
    word_timestamps: bool = False
    temperature: float | None = None
    param: str = "file"

    @property
    def prompt_tokens(self) -> int:
        """Return 0: what counts are seconds."""
        return 0

    @property
    def choices(self) -> int:
        """Return 1."""
        return 1

    @property
    def dropped_messages(self) -> int:
        """Return 0: there are no messages."""
        return 0
