"""Reading of reference audio: a client's file, decoded within limits."""

from __future__ import annotations

from pathlib import Path

from greenroom.engine.fairness.preparation_steps import PreparationSteps
from greenroom.engine.media.audio.decoding import decode_recording
from greenroom.engine.sound.speech.preparing.prepared_speech import REFERENCE_RATE, Samples
from greenroom.schemas.problems import invalid

PARAM = "ref_audio"

LONGEST_SECONDS = 60
"""Longest accepted recording in seconds; models use ten or twenty."""
SHORTEST_SECONDS = 0.5


def read_reference(path: str, client: str = "") -> PreparationSteps[Samples]:
    """Return the samples of an uploaded file, at `REFERENCE_RATE`; yields while it decodes.

    Raises:
        ProblemError: 400: it is not audio, or is too long or too short; 503: too many decoders hang.
    """
    most = LONGEST_SECONDS * REFERENCE_RATE
    samples = (yield from decode_recording(Path(path), REFERENCE_RATE, most + 1, PARAM, client)).samples
    if len(samples) > most:
        raise invalid(f"`{PARAM}` is longer than {LONGEST_SECONDS} seconds.", PARAM)
    if len(samples) < SHORTEST_SECONDS * REFERENCE_RATE:
        raise invalid(f"`{PARAM}` is shorter than {SHORTEST_SECONDS:g} seconds.", PARAM)
    return samples
