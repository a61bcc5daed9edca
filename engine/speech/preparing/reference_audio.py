"""Reference audio: a client's file, decoded within bounds."""

from __future__ import annotations

import av
import numpy as np
from av.audio.resampler import AudioResampler
from av.error import FFmpegError

from greenroom.engine.audio.containers import tolerant_of_metadata
from greenroom.engine.speech.preparing.prepared_speech import REFERENCE_RATE, Samples
from greenroom.schemas.problems import ProblemError, invalid

PARAM = "ref_audio"

LONGEST_SECONDS = 60
"""Of a recording; models use ten or twenty."""
SHORTEST_SECONDS = 0.5
_MOST_PACKETS = 100_000
"""Read of a file, whatever they decode to."""

_OPTIONS = {
    # A playlist could name any file or address.
    "format_whitelist": "wav,mp3,flac,ogg,aac,mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,aiff,w64,caf",
    "protocol_whitelist": "file",
}


def read_reference(path: str) -> Samples:
    """Return the samples of a spooled file, at `REFERENCE_RATE`.

    Raises:
        ProblemError: 400: it is no audio, or too long or too short.
    """
    try:
        samples = _decode(path)
    except (FFmpegError, ValueError, IndexError, OSError) as error:
        detail = f"`{PARAM}` cannot be decoded as audio (wav, mp3, flac, ogg, aac, mp4 or webm is expected)."
        raise invalid(detail, PARAM) from error
    if len(samples) < SHORTEST_SECONDS * REFERENCE_RATE:
        raise invalid(f"`{PARAM}` is shorter than {SHORTEST_SECONDS:g} seconds.", PARAM)
    return samples


def _decode(path: str) -> Samples:
    resampler = AudioResampler(format="flt", layout="mono", rate=REFERENCE_RATE)
    pieces: list[Samples] = []
    total = 0
    with av.open(path, mode="r", options=_OPTIONS, **tolerant_of_metadata()) as container:
        stream = container.streams.audio[0]
        for number, packet in enumerate(container.demux(stream)):
            for frame in packet.decode():
                for resampled in resampler.resample(frame):
                    pieces.append(_samples(resampled))
                    total += len(pieces[-1])
            if total > LONGEST_SECONDS * REFERENCE_RATE or number > _MOST_PACKETS:
                raise _too_long()
        pieces += map(_samples, resampler.resample(None))
    samples = np.concatenate(pieces) if pieces else np.zeros(0, np.float32)
    if not np.isfinite(samples).all():
        raise ValueError("not every sample is a number")
    return samples


def _samples(frame: av.AudioFrame) -> Samples:
    return frame.to_ndarray().reshape(-1).astype(np.float32)


def _too_long() -> ProblemError:
    return invalid(f"`{PARAM}` is longer than {LONGEST_SECONDS} seconds.", PARAM)
