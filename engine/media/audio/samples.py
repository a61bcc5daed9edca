"""A recording's samples: decoded, mixed down and resampled block by block, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
from numpy.typing import NDArray

from greenroom.engine.media.audio.containers import BoundedFile, import_av, open_container, undecodable
from greenroom.engine.media.audio.resampling import Resampler
from greenroom.schemas.problems import ProblemError, invalid

if TYPE_CHECKING:
    from av.audio.frame import AudioFrame
    from av.audio.stream import AudioStream
    from av.container import InputContainer

Samples = NDArray[np.float32]
"""Mono samples from -1 to 1, `[samples]`."""

MAX_SECONDS = 6 * 3600
"""Longest accepted recording in seconds. A few megabytes of compressed silence may last for months."""
MAX_CHANNELS = 8
RATES = (1_000, 192_000)
"""Lowest and highest accepted sample rate in Hz: at 1 Hz, a small file would also last for months. No
microphone needs more than 192,000, and every sample takes time to decode, silent or not.
"""
MAX_SAMPLES = MAX_SECONDS * 48_000 * MAX_CHANNELS
"""Largest number of samples of a recording, summed over channels: a few megabytes of silence at the highest
rate in all channels would be decoded for minutes.
"""
_MAX_FRAME = 1 << 20
_MAX_BROKEN = 1000
"""Number of undecodable packets at which a recording fails."""


@attrs.frozen
class AudioFacts:
    """A container's metadata about its audio.

    Args:
        duration: Duration in seconds; None if the container states none.
        codec: The audio codec's name in libavcodec.
    """

    duration: float | None
    container: str
    codec: str


class OpenedRecording:
    """An open recording whose audio is decoded on demand.

    Args:
        source: Path or content of the file.
        rate: Target sample rate in Hz.
        param: The file's parameter name, for errors.

    Attributes:
        decoded: Number of samples decoded so far, summed over channels.

    Raises:
        ProblemError: 400: it is not audio, is too long, or has an unsupported sample rate or channel count.
    """

    def __init__(self, source: Path | bytes, rate: int, param: str = "file") -> None:
        self._rate = rate
        self._param = param
        self.decoded = 0
        self._file = BoundedFile(source)
        try:
            self._container: InputContainer = open_container(self._file, param)
            self._stream = self._find_stream()
            context = self._stream.codec_context
            context.thread_count = 1
            self._check(context.sample_rate, context.channels)
            self.facts = self._find_facts()
        except BaseException:
            self._file.close()
            raise

    def blocks(self) -> Iterator[Samples]:
        """Yield the samples in order; empty blocks in between are the decoder's heartbeat.

        Raises:
            ProblemError: 400: it cannot be decoded, or is too long.
        """
        heard, left = 0, MAX_SECONDS * self._rate
        for frame in self._frames():
            block = np.zeros(0, np.float32) if frame is None else _to_samples(frame)
            heard += len(block)
            if heard > left:
                raise _too_long(self._param)
            yield block
        if not heard:
            raise invalid("The file holds no sound that can be decoded.", self._param)

    def close(self) -> None:
        self._container.close()
        self._file.close()

    def _find_stream(self) -> AudioStream:
        stream = next(iter(self._container.streams.audio), None)
        if stream is None:
            raise invalid("The file holds no audio.", self._param)
        if stream.codec_context is None:
            raise undecodable(self._param)
        return stream

    def _find_facts(self) -> AudioFacts:
        stream, seconds = self._stream, None
        if stream.duration is not None and stream.time_base is not None:
            seconds = stream.duration * float(stream.time_base)
        elif self._container.duration is not None:
            seconds = self._container.duration / 1_000_000
        if seconds is not None and seconds > MAX_SECONDS:
            raise _too_long(self._param)
        known = seconds if seconds is not None and seconds > 0 else None
        context = stream.codec_context
        self._check_samples(round((known or 0) * context.sample_rate * context.channels))
        return AudioFacts(known, self._container.format.name, stream.codec_context.name)

    def _frames(self) -> Iterator[AudioFrame | None]:
        """Yield resampled frames, and None for every packet or frame without output."""
        resampler: Resampler | None = None
        for frame in self._decoded_frames():
            if frame is None:
                yield None
                continue
            self.decoded += frame.samples * frame.layout.nb_channels
            self._check_samples(self.decoded)
            if resampler is None or not resampler.takes(frame):
                if resampler is not None:
                    yield from resampler.finish()
                self._check(frame.sample_rate, frame.layout.nb_channels)
                if frame.samples > _MAX_FRAME:
                    raise undecodable(self._param)
                resampler = Resampler(frame, self._rate)
            yield from resampler.resample(frame) or (None,)
        if resampler is not None:
            yield from resampler.finish()

    def _decoded_frames(self) -> Iterator[AudioFrame | None]:
        av = import_av()
        broken = 0
        packets = self._container.demux(self._stream)
        while True:
            try:
                packet = next(packets)
                frames = packet.decode()
            except StopIteration:
                return
            except av.EOFError:
                return
            except (av.FFmpegError, OSError, ValueError, MemoryError) as error:
                broken += 1
                if broken > _MAX_BROKEN:
                    raise undecodable(self._param) from error
                yield None
                continue
            yield None
            yield from frames

    def _check(self, rate: int, channels: int) -> None:
        """Reject rates and channel counts whose decoding costs far more than the file's size suggests."""
        slowest, fastest = RATES
        if rate and not slowest <= rate <= fastest:
            detail = f"The audio has {rate:,} samples a second; {slowest:,} to {fastest:,} are taken."
            raise invalid(detail, self._param)
        if channels > MAX_CHANNELS:
            detail = f"The audio has {channels:,} channels; 1 to {MAX_CHANNELS} are taken."
            raise invalid(detail, self._param)

    def _check_samples(self, count: int) -> None:
        if count > MAX_SAMPLES:
            detail = (
                f"The recording has more than {MAX_SAMPLES:,} samples in all its channels, the most taken."
            )
            raise invalid(f"{detail} Fewer channels or a lower rate would do.", self._param)


def _to_samples(frame: Any) -> Samples:
    samples: Samples = frame.to_ndarray()[0]
    # Floating-point files may hold any values.
    if not np.isfinite(samples).all():  # Also checked after mixing: a sum of finite samples may overflow.
        samples = np.nan_to_num(samples, nan=0.0, posinf=0.0, neginf=0.0)
    return np.clip(samples, -1.0, 1.0)


def _too_long(param: str) -> ProblemError:
    return invalid(f"The recording is longer than {MAX_SECONDS // 3600} hours, the longest taken.", param)
