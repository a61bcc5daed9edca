"""Sounds in conversations, decoded as transcription decodes recordings."""

from __future__ import annotations

import numpy as np

from greenroom.engine.audio.reader import RecordingReader
from greenroom.engine.audio.samples import Samples
from greenroom.engine.vision.prompts.senses import Hearing
from greenroom.schemas.messages import AudioPart
from greenroom.schemas.problems import invalid

_WAIT = 1.0
"""Seconds between two looks at a decoder, which gives up by itself."""


def decode_sound(part: AudioPart, hearing: Hearing) -> Samples:
    """Return the samples of a sound, as its model hears them.

    Raises:
        ProblemError: 400: it cannot be decoded, or is longer than the model hears.
    """
    param = part.param or "messages"
    pieces: list[Samples] = []
    most = int(hearing.seconds * hearing.rate)
    count = 0
    reader = RecordingReader(part.data, hearing.rate, param)
    try:
        reader.facts()
        while (piece := reader.read(_WAIT)) is not None:
            pieces.append(piece)
            count += len(piece)
            if count > most:
                detail = f"`{param}` is longer than the {hearing.seconds:g} seconds that this model hears."
                raise invalid(detail, param)
    finally:
        reader.close()
    if not count:
        raise invalid(f"`{param}` holds no sound.", param)
    return np.concatenate(pieces)
