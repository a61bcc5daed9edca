"""Speech encoded while it is generated: samples in, bytes for the client out, chunk by chunk."""

from __future__ import annotations

import io
import struct
from typing import Any, BinaryIO

import av
import numpy as np
from av.audio.resampler import AudioResampler

from greenroom.http.media.audio.audio_formats import AudioFormat

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
        self._position = 0

    def encode(self, samples: bytes, rate: int) -> bytes:
        """Return what is ready after these samples, maybe nothing yet.

        Args:
            samples: One channel of little-endian 16-bit integers.
            rate: Theirs, a second; the same in every call.
        """
        if self._writer is None:
            self._writer = self._open(self._format.rate_for(rate))
        array = np.frombuffer(samples, dtype="<i2").astype(np.int16, copy=False)
        if not len(array):
            return b""
        frame = av.AudioFrame.from_ndarray(array.reshape(1, -1), format="s16", layout="mono")
        frame.sample_rate = rate
        frame.pts = self._position
        self._position += len(array)
        return self._writer.write(frame)

    def finish(self) -> bytes:
        """Return the end."""
        return self._writer.close() if self._writer is not None else b""

    def _open(self, rate: int) -> _Samples | _Packets:
        if self._format.container:
            return _Packets(self._format, rate)
        return _Samples(rate, with_header=self._format.content_type == "audio/wav")


class _Samples:
    """Sends samples as they are, behind the header of a wav file whose length is not known yet."""

    def __init__(self, rate: int, with_header: bool) -> None:
        self._header = _wav_header(rate) if with_header else b""
        self._resampler = AudioResampler(format="s16", layout="mono", rate=rate)

    def write(self, frame: av.AudioFrame | None) -> bytes:
        header, self._header = self._header, b""
        frames = (part for part in self._resampler.resample(frame) if part is not None)
        return header + b"".join(part.to_ndarray().astype("<i2").tobytes() for part in frames)

    def close(self) -> bytes:
        return self.write(None)


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

    def write(self, frame: av.AudioFrame | None) -> bytes:
        # The encoder's own resampler makes frames of its rate, samples and size.
        self._container.mux(self._stream.encode(frame))
        return self._sink.take()

    def close(self) -> bytes:
        written = self.write(None)
        self._container.close()
        return written + self._sink.take()


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
