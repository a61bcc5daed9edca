"""A recording that its adapter has looked at, ready to be transcribed."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import attrs

from greenroom.engine.audio.samples import AudioFacts
from greenroom.schemas.prepared_input import SingleAnswerInput


@attrs.frozen
class PreparedTranscription(SingleAnswerInput):
    """What an engine needs to transcribe.

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
