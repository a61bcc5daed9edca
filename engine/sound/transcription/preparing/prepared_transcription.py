"""A recording that its adapter has looked at, ready to be transcribed."""

from __future__ import annotations

import attrs

from greenroom.engine.media.audio.samples import AudioFacts
from greenroom.schemas.messages.prepared_input import SingleAnswerInput
from greenroom.schemas.messages.requests import TranscriptionInput


@attrs.frozen
class PreparedTranscription(SingleAnswerInput):
    """What an engine needs to transcribe.

    Args:
        asked: With the language as the model calls it.
    """

    asked: TranscriptionInput
    facts: AudioFacts
