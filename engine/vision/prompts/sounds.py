"""Decoding of sounds in conversations, with the decoder of transcription."""

from __future__ import annotations

from greenroom.engine.fairness.preparation_steps import PreparationSteps
from greenroom.engine.media.audio.decoding import decode_recording
from greenroom.engine.media.audio.samples import Samples
from greenroom.engine.vision.prompts.media_limits import AudioLimits
from greenroom.schemas.messages.messages import AudioPart
from greenroom.schemas.problems import invalid


def decode_sound(part: AudioPart, audio_limits: AudioLimits, client: str = "") -> PreparationSteps[Samples]:
    """Return a sound's samples at the model's rate; yields while it decodes.

    Raises:
        ProblemError: 400: the sound cannot be decoded, or is longer than the model takes.
    """
    param = part.param or "messages"
    most = int(audio_limits.seconds * audio_limits.rate)
    samples = (yield from decode_recording(part.data, audio_limits.rate, most + 1, param, client)).samples
    if len(samples) > most:
        detail = f"`{param}` is longer than the {audio_limits.seconds:g} seconds that this model hears."
        raise invalid(detail, param)
    return samples
