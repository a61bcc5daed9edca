"""Recordings for tests: noise, tones and silence, in any container that PyAV writes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

RATE = 16_000
_PIECE = 60 * RATE

CONTAINERS: Mapping[str, tuple[str, str]] = {
    "wav": ("wav", "pcm_s16le"),
    "wav24": ("wav", "pcm_s24le"),
    "wavfloat": ("wav", "pcm_f32le"),
    "w64": ("w64", "pcm_s16le"),
    "aiff": ("aiff", "pcm_s16be"),
    "au": ("au", "pcm_s16be"),
    "caf": ("caf", "pcm_s16le"),
    "flac": ("flac", "flac"),
    "mp3": ("mp3", "libmp3lame"),
    "opus": ("ogg", "libopus"),
    "webm": ("webm", "libopus"),
    "mkv": ("matroska", "libopus"),
    "aac": ("adts", "aac"),
    "m4a": ("mp4", "aac"),
    "mov": ("mov", "pcm_s16le"),
    "alac": ("ipod", "alac"),
    "3gp": ("3gp", "aac"),
    "mpegts": ("mpegts", "aac"),
    "ac3": ("ac3", "ac3"),
    "eac3": ("eac3", "eac3"),
    "avi": ("avi", "pcm_s16le"),
    "flv": ("flv", "aac"),
    "asf": ("asf", "libmp3lame"),
    "wavpack": ("wv", "wavpack"),
    "tta": ("tta", "tta"),
    "nut": ("nut", "pcm_s16le"),
}
"""Container format and encoder, by name."""

Sound = NDArray[np.float32]


def noise(seconds: float, seed: int = 0, level: float = 0.1) -> Sound:
    """Return noise without silent parts."""
    samples = np.random.default_rng(seed).standard_normal(round(seconds * RATE))
    return np.clip(samples * level, -1, 1).astype(np.float32)


def silence(seconds: float) -> Sound:
    """Return silence."""
    return np.zeros(round(seconds * RATE), np.float32)


def write_recording(
    path: Path,
    sound: Sound,
    container: str = "wav",
    *,
    rate: int = RATE,
    channels: int = 1,
    video: bool = False,
) -> Path:
    """Write `sound`, sampled at 16 kHz, to a file of one of `CONTAINERS`.

    Args:
        rate: Sample rate of the file in Hz; the sound is resampled.
        video: True to add a video track.
    """
    import av

    name, encoder = CONTAINERS[container]
    layout = "stereo" if channels == 2 else "mono"
    with av.open(str(path), "w", format=name) as output:
        pictures = _picture_stream(output) if video else None
        stream: Any = output.add_stream(encoder, rate=rate, layout=layout)
        resampler = av.AudioResampler(stream.format.name, layout, rate, frame_size=stream.frame_size or 1024)
        if pictures is not None:
            _write_pictures(output, pictures, len(sound) / RATE)
        for begin in range(0, len(sound), _PIECE):
            frame = av.AudioFrame.from_ndarray(sound[None, begin : begin + _PIECE], "flt", "mono")
            frame.sample_rate = RATE
            for each in resampler.resample(frame):
                output.mux(stream.encode(each))
        for last in [*resampler.resample(None), None]:
            output.mux(stream.encode(last))
    return path


def _picture_stream(output: Any) -> Any:
    stream = output.add_stream("mpeg4", rate=5)
    stream.width = stream.height = 64
    stream.pix_fmt = "yuv420p"
    return stream


def _write_pictures(output: Any, stream: Any, seconds: float) -> None:
    import av

    for number in range(round(seconds * 5)):
        picture = np.full((64, 64, 3), number % 256, np.uint8)
        output.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
    output.mux(stream.encode(None))
