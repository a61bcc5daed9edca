"""Reference audio: a client's file, decoded within bounds."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from greenroom.engine.audio.reader import RecordingReader
from greenroom.engine.speech.preparing.prepared_speech import REFERENCE_RATE, Samples
from greenroom.schemas.problems import invalid

PARAM = "ref_audio"

LONGEST_SECONDS = 60
"""Of a recording; models use ten or twenty."""
SHORTEST_SECONDS = 0.5
_POLL = 0.5


def read_reference(path: str) -> Samples:
    """Return the samples of a spooled file, at `REFERENCE_RATE`.

    Raises:
        ProblemError: 400: it is no audio, or too long or too short; 503: too many decoders hang.
    """
    reader = RecordingReader(Path(path), REFERENCE_RATE, PARAM)
    try:
        reader.facts()
        samples = _read(reader)
    finally:
        reader.close()
    if len(samples) < SHORTEST_SECONDS * REFERENCE_RATE:
        raise invalid(f"`{PARAM}` is shorter than {SHORTEST_SECONDS:g} seconds.", PARAM)
    return samples


def _read(reader: RecordingReader) -> Samples:
    blocks: list[Samples] = []
    total = 0
    while (block := reader.read(_POLL)) is not None:
        blocks.append(block)
        total += len(block)
        if total > LONGEST_SECONDS * REFERENCE_RATE:
            raise invalid(f"`{PARAM}` is longer than {LONGEST_SECONDS} seconds.", PARAM)
    return np.concatenate([np.zeros(0, np.float32), *blocks])
