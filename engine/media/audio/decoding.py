"""Decoding of recordings in steps, so that other requests can use the preparing thread meanwhile."""

from __future__ import annotations

import time
from pathlib import Path

import attrs
import numpy as np

from greenroom.engine.fairness.preparation_steps import PENDING, PreparationSteps, StepSemaphore
from greenroom.engine.media.audio.reader import RecordingReader
from greenroom.engine.media.audio.samples import AudioFacts, Samples

AT_ONCE = 4
"""Number of recordings decoded at once for all models; further ones wait without blocking other requests."""
_DECODING = StepSemaphore(AT_ONCE)
_SLICE_SECONDS = 0.02


@attrs.frozen(eq=False)
class DecodedRecording:
    """The samples of a recording or of its beginning."""

    facts: AudioFacts
    samples: Samples = attrs.field(repr=False)


def decode_recording(
    source: Path | bytes, rate: int, most: int, param: str = "file", client: str = ""
) -> PreparationSteps[DecodedRecording]:
    """Decode a recording, or at least the first `most` samples; yields while it decodes.

    Closing the generator stops the decoding.

    Args:
        source: Path or content of the file.
        rate: Target sample rate in Hz.
        param: The file's parameter name, for errors.
        client: The client's name; clients share the decoders fairly.

    Raises:
        ProblemError: 400: it cannot be decoded; 503: too many decoders hang.
    """
    yield from _DECODING.acquire()
    try:
        reader = RecordingReader(source, rate, param, client=client)
        try:
            samples = yield from _read(reader, most)
        finally:
            reader.close()
    finally:
        _DECODING.release()
    assert reader.facts is not None, "they come before the samples"
    return DecodedRecording(reader.facts, samples)


def _read(reader: RecordingReader, most: int) -> PreparationSteps[Samples]:
    blocks = [np.zeros(0, np.float32)]
    count = 0
    ends = time.monotonic() + _SLICE_SECONDS
    while count < most and (block := reader.read(_SLICE_SECONDS)) is not None:
        blocks.append(block)
        count += len(block)
        if time.monotonic() >= ends:
            yield PENDING
            ends = time.monotonic() + _SLICE_SECONDS
    return np.concatenate(blocks)
