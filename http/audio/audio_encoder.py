"""Speech encoded while it is generated: samples in, bytes for the client out, chunk by chunk."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable
from typing import Any, BinaryIO

import av
import numpy as np
from av.audio.resampler import AudioResampler

from greenroom.http.audio.audio_formats import AudioFormat

_UNKNOWN_LENGTH = 0xFFFFFFFF
_WAV_HEADER_BYTES = 44


class AudioEncoder:
    """Encodes one answer, on one thread at a time.

    Args:
        wanted: The form.
    """

    def __init__(self, wanted: AudioFormat) -> None:
        self._format = wanted
        self._writer: _Samples | _Packets | None = None
        self._resampler: AudioResampler | None = None
        self._position = 0

    def encode(self, samples: bytes, rate: int) -> bytes:
        """Return what is ready after these samples, maybe nothing yet.

        Args:
            samples: One channel of little-endian 16-bit integers.
            rate: Theirs, a second; the same in every call.
        """
        if self._writer is None or self._resampler is None:
            self._open(rate)
            return self.encode(samples, rate)
        array = np.frombuffer(samples, dtype="<i2").astype(np.int16, copy=False)
        if not len(array):
            return b""
        frame = av.AudioFrame.from_ndarray(array.reshape(1, -1), format="s16", layout="mono")
        frame.sample_rate = rate
        frame.pts = self._position
        self._position += len(array)
        return self._writer.write(self._resampler.resample(frame))

    def finish(self) -> bytes:
        """Return the end."""
        if self._writer is None or self._resampler is None:
            return b""
        rest = self._resampler.resample(None) if self._position else []
        return self._writer.write(rest) + self._writer.close()

    def _open(self, rate: int) -> None:
        wanted = self._format.rate_for(rate)
        self._writer = _Packets(self._format, wanted) if self._format.container else None
        if self._writer is None:
            self._writer = _Samples(wanted, with_header=self._format.content_type == "audio/wav")
        self._resampler = AudioResampler(format=self._writer.sample_format, layout="mono", rate=wanted)


class _Samples:
    """Sends samples as they are, behind the header of a wav file whose length is not known yet."""

    sample_format = "s16"

    def __init__(self, rate: int, with_header: bool) -> None:
        self._header = _wav_header(rate) if with_header else b""

    def write(self, frames: Iterable[av.AudioFrame]) -> bytes:
        header, self._header = self._header, b""
        return header + b"".join(frame.to_ndarray().astype("<i2").tobytes() for frame in frames)

    def close(self) -> bytes:
        return b""


class _Packets:
    """Sends what an encoder of FFmpeg makes of samples, in its container."""

    def __init__(self, wanted: AudioFormat, rate: int) -> None:
        self._sink = _Sink()
        options = {"flush_packets": "1", **wanted.options}
        self._container: Any = av.open(self._sink, "w", format=wanted.container, container_options=options)
        stream: Any = self._container.add_stream(
            wanted.codec, rate=rate, layout="mono", options=dict(wanted.codec_options)
        )
        if wanted.bit_rate is not None:
            stream.bit_rate = wanted.bit_rate
        self._stream = stream
        self.sample_format: str = stream.codec_context.format.name

    def write(self, frames: Iterable[av.AudioFrame]) -> bytes:
        for frame in frames:
            self._container.mux(self._stream.encode(frame))
        return self._sink.take()

    def close(self) -> bytes:
        self._container.mux(self._stream.encode(None))
        self._container.close()
        return self._sink.take()


class _Sink:
    """A file that cannot be rewound, as a socket cannot."""

    def __init__(self) -> None:
        self._written = bytearray()

    def write(self, data: bytes) -> int:
        self._written += data
        return len(data)

    def take(self) -> bytes:
        written, self._written = bytes(self._written), bytearray()
        return written


def complete_wav_header(file: BinaryIO) -> None:
    """Write the length into a wav file that was made by an encoder, and is complete."""
    size = file.seek(0, io.SEEK_END)
    for position, behind in ((4, 8), (_WAV_HEADER_BYTES - 4, _WAV_HEADER_BYTES)):
        file.seek(position)
        file.write(struct.pack("<I", min(max(0, size - behind), _UNKNOWN_LENGTH)))


def _wav_header(rate: int) -> bytes:
    """Return the header of a mono wav file of 16 bits, as long as can be: what a stream's reader expects."""
    riff = struct.pack("<4sI4s", b"RIFF", _UNKNOWN_LENGTH, b"WAVE")
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, rate, rate * 2, 2, 16)
    return riff + form + struct.pack("<4sI", b"data", _UNKNOWN_LENGTH)
