"""PyAV's decoding of the audio that our server sends, and WAV files for uploads."""

from __future__ import annotations

import io
from typing import Any

import attrs
import av
import numpy as np
import numpy.typing as npt


@attrs.frozen(eq=False)
class AudioFile:
    """A decoded mono file."""

    format: str
    codec: str
    rate: int
    samples: npt.NDArray[np.float32]

    @property
    def seconds(self) -> float:
        """Duration in seconds."""
        return len(self.samples) / self.rate


def decode(data: bytes) -> AudioFile:
    """Decode a whole file."""
    with av.open(io.BytesIO(data), mode="r") as container:
        stream = container.streams.audio[0]
        frames = [frame.to_ndarray() for frame in container.decode(stream)]
        samples = np.concatenate([_floats(frame) for frame in frames])
        return AudioFile(
            container.format.name, stream.codec_context.codec.canonical_name, stream.rate, samples
        )


def tone(seconds: float, rate: int = 24_000, hertz: float = 440.0) -> npt.NDArray[np.int16]:
    """Return a tone at a quarter of full amplitude."""
    times = np.arange(round(seconds * rate)) / rate
    return np.asarray(np.rint(np.sin(2 * np.pi * hertz * times) * 8_000), np.int16)


def wav_file(seconds: float, rate: int = 24_000, title: bytes = b"") -> bytes:
    """Return a WAV file of a tone."""
    import wave

    sink = io.BytesIO()
    with wave.open(sink, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(tone(seconds, rate).tobytes())
    data = sink.getvalue()
    if title:
        title += bytes(2 - len(title) % 2)
        entry = b"INFOINAM" + len(title).to_bytes(4, "little") + title
        data = data[:12] + b"LIST" + len(entry).to_bytes(4, "little") + entry + data[12:]
    return data


def _floats(frame: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    scale = 1.0 if frame.dtype.kind == "f" else float(np.iinfo(frame.dtype).max)
    return (frame.reshape(-1) / scale).astype(np.float32)
