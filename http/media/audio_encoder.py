"""Audio formats of speech, and its incremental encoding while it is generated."""

from __future__ import annotations

import io
import struct
from collections.abc import Mapping
from typing import Any, BinaryIO

import attrs
import av
import numpy as np
from av.audio.resampler import AudioResampler

PCM_RATE = 24_000  # Sample rate of raw audio in Hz, which raw audio cannot state itself


@attrs.frozen
class AudioFormat:
    """One audio format.

    Args:
        container: FFmpeg's name of the container; empty for uncompressed samples.
        rates: Supported sample rates in Hz; empty for any.
        bit_rate: Bit rate of one channel in bits per second.
        options: Options of the container that flush every packet and rewrite nothing afterwards.
    """

    content_type: str
    container: str = ""
    codec: str = ""
    rates: tuple[int, ...] = ()
    bit_rate: int | None = None
    options: Mapping[str, str] = attrs.field(factory=dict)
    codec_options: Mapping[str, str] = attrs.field(factory=dict)

    def rate_for(self, rate: int) -> int:
        """Return the same sample rate if supported, else the next higher, else the highest one."""
        if not self.rates or rate in self.rates:
            return rate
        return min((known for known in self.rates if known > rate), default=max(self.rates))


_MPEG_RATES = (8_000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000)
_OPUS_RATES = (8_000, 12_000, 16_000, 24_000, 48_000)

# A thorough search by the encoders would double the encoding time, and only helps music at low bit rates.
AUDIO_FORMATS: Mapping[str, AudioFormat] = {
    "mp3": AudioFormat(
        "audio/mpeg",
        "mp3",
        "libmp3lame",
        _MPEG_RATES,
        96_000,
        {"write_xing": "0", "id3v2_version": "0"},
        {"compression_level": "7"},
    ),
    "opus": AudioFormat(
        "audio/ogg",
        "ogg",
        "libopus",
        _OPUS_RATES,
        48_000,
        {"page_duration": "80000"},
        {"compression_level": "5"},
    ),
    "aac": AudioFormat("audio/aac", "adts", "aac", _MPEG_RATES, 96_000),
    "flac": AudioFormat("audio/flac", "flac", "flac"),
    "wav": AudioFormat("audio/wav"),
    "pcm": AudioFormat("audio/pcm", rates=(PCM_RATE,)),
}

_UNKNOWN_LENGTH = 0xFFFFFFFF
_WAV_HEADER_BYTES = 44


class AudioEncoder:
    """Encodes one response; not safe for concurrent use."""

    def __init__(self, wanted: AudioFormat) -> None:
        self._format = wanted
        self._writer: _Samples | _Packets | None = None
        self._position = 0

    def encode(self, samples: bytes, rate: int) -> bytes:
        """Return the encoded bytes that these samples complete, possibly none. `samples`: one channel of
        little-endian 16-bit integers; `rate`: sample rate in Hz, the same in every call.
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
        return self._writer.close() if self._writer is not None else b""

    def _open(self, rate: int) -> _Samples | _Packets:
        if self._format.container:
            return _Packets(self._format, rate)
        return _Samples(rate, with_header=self._format.content_type == "audio/wav")


class _Samples:
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
        # The encoder resamples to the rate, sample format and frame size that it needs.
        self._container.mux(self._stream.encode(frame))
        return self._sink.take()

    def close(self) -> bytes:
        written = self.write(None)
        self._container.close()
        return written + self._sink.take()


class _Sink:
    def __init__(self) -> None:
        self._written = bytearray()

    def write(self, data: bytes) -> int:
        self._written += data
        return len(data)

    def take(self) -> bytes:
        written, self._written = bytes(self._written), bytearray()
        return written


def complete_wav_header(file: BinaryIO) -> None:
    """Write the lengths into the header of a complete WAV file from an `AudioEncoder`."""
    size = file.seek(0, io.SEEK_END)
    for position, behind in ((4, 8), (_WAV_HEADER_BYTES - 4, _WAV_HEADER_BYTES)):
        file.seek(position)
        file.write(struct.pack("<I", min(max(0, size - behind), _UNKNOWN_LENGTH)))


def _wav_header(rate: int) -> bytes:
    """Return a 16-bit mono WAV header with the largest length, as readers of streams expect."""
    riff = struct.pack("<4sI4s", b"RIFF", _UNKNOWN_LENGTH, b"WAVE")
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, rate, rate * 2, 2, 16)
    return riff + form + struct.pack("<4sI", b"data", _UNKNOWN_LENGTH)
