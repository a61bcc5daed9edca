"""A transcription request that its adapter has checked."""

from __future__ import annotations

import attrs

from greenroom.engine.media.audio.samples import AudioFacts
from greenroom.schemas.messages.prepared_input import SingleAnswerInput
from greenroom.schemas.messages.requests import TranscriptionInput


@attrs.frozen
class PreparedTranscription(SingleAnswerInput):
    """The engine's input for one recording.

    Args:
        asked: The request, with the language in the model's form.
        facts: The recording's metadata.
    """

    asked: TranscriptionInput
    facts: AudioFacts
