"""Recordings that a request's preparation needs: decoded while others use the thread that prepares."""

from __future__ import annotations

import time
from pathlib import Path

import attrs
import numpy as np

from greenroom.engine.fairness.slices import WAITS, Slices, SliceSemaphore
from greenroom.engine.media.audio.reader import RecordingReader
from greenroom.engine.media.audio.samples import AudioFacts, Samples

AT_ONCE = 4
"""Recordings that are held so for all models; whoever else has one waits, and others go on."""
_DECODING = SliceSemaphore(AT_ONCE)
_SLICE_SECONDS = 0.02


@attrs.frozen(eq=False)
class DecodedRecording:
    """A recording, or its beginning."""

    facts: AudioFacts
    samples: Samples = attrs.field(repr=False)


def decode_recording(
    source: Path | bytes, rate: int, most: int, param: str = "file", client: str = ""
) -> Slices[DecodedRecording]:
    """Return a recording, or at least `most` samples of its beginning, yielding while it is decoded.

    Whoever leaves it ends the decoding.

    Args:
        source: Where it lies, or what its file holds.
        rate: Samples a second that are wanted.
        param: What the client calls the file, for errors.
        client: Who sent it.

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


def _read(reader: RecordingReader, most: int) -> Slices[Samples]:
    blocks = [np.zeros(0, np.float32)]
    count = 0
    ends = time.monotonic() + _SLICE_SECONDS
    while count < most and (block := reader.read(_SLICE_SECONDS)) is not None:
        blocks.append(block)
        count += len(block)
        if time.monotonic() >= ends:
            yield WAITS
            ends = time.monotonic() + _SLICE_SECONDS
    return np.concatenate(blocks)
