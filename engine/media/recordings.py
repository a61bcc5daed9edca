"""A recording's samples: decoded, mixed down and resampled block by block, in bounded memory."""

from __future__ import annotations

import ctypes
import functools
import io
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn

import attrs
import numpy as np
from numpy.typing import NDArray

from greenroom.engine.media.file_structure import is_mp4, unneeded_atoms
from greenroom.schemas.logs import get_logger
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
_MAX_BROKEN = 1000  # Number of undecodable packets at which a recording fails


@attrs.frozen
class AudioFacts:
    """A container's metadata about its audio. `duration`: duration in seconds; None if the container states
    none.
    """

    duration: float | None
    container: str
    codec: str


class OpenedRecording:
    """An open recording whose audio is decoded on demand.

    Args:
        rate: Target sample rate in Hz.

    Attributes:
        decoded: Number of samples decoded so far, summed over channels.

    Raises:
        ProblemError (400): it is not audio, is too long, or has an unsupported sample rate or channel count.
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
        """Yield the samples in order; empty blocks in between are the decoder's heartbeat. Raises
        ProblemError (400): it cannot be decoded, or is too long.
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


class Resampler:
    """Converts frames of one layout to mono frames of 32-bit floats.

    PyAV's `AudioResampler` does the same, but starts a thread per core.

    Args:
        rate: Target sample rate in Hz.
    """

    def __init__(self, first: AudioFrame, rate: int) -> None:
        av = import_av()
        self._blocking, self._ended = av.BlockingIOError, av.EOFError
        self._source = _shape(first)
        self._graph: Any = av.filter.Graph()
        self._graph.threads = 1
        source = self._graph.add(
            "abuffer",
            sample_rate=str(first.sample_rate),
            sample_fmt=first.format.name,
            channel_layout=first.layout.name,
            time_base=f"1/{first.sample_rate}",
        )
        wanted = self._graph.add("aformat", sample_rates=str(rate), sample_fmts="flt", channel_layouts="mono")
        sink = self._graph.add("abuffersink")
        source.link_to(wanted)
        wanted.link_to(sink)
        self._graph.configure()

    def takes(self, frame: AudioFrame) -> bool:
        return _shape(frame) == self._source

    def resample(self, frame: AudioFrame) -> list[AudioFrame]:
        frame.pts = None  # Otherwise broken time stamps make the filter insert silence.
        return self._push(frame)

    def finish(self) -> list[AudioFrame]:
        return self._push(None)

    def _push(self, frame: AudioFrame | None) -> list[AudioFrame]:
        self._graph.push(frame)
        frames: list[AudioFrame] = []
        while True:
            try:
                frames.append(self._graph.pull())
            except (self._blocking, self._ended):
                return frames


def _shape(frame: AudioFrame) -> tuple[str, str, int, int]:
    return frame.format.name, frame.layout.name, frame.layout.nb_channels, frame.sample_rate


log = get_logger(__name__)

FORMATS = (
    "aac,ac3,aiff,amr,amrnb,amrwb,ape,asf,au,avi,caf,dts,eac3,flac,flv,matroska,mp3,mpeg,mpegts,nut,ogg,oma,"
    "tta,voc,w64,wav,wv"
)
"""Containers that are opened besides `MOVIE`, by libavformat's names: files that hold all that they play.

Playlists (HLS, DASH, concat and the like) are excluded, since they name further files or addresses.
"""
MOVIE = "mov"  # Container of MP4, M4A and QuickTime files

_PROBE_BYTES = 1024 * 1024
_PROBE_MICROSECONDS = 5_000_000
_BUFFER_BYTES = 256 * 1024
_MOST_READ = 8
"""Limit of bytes read, in multiples of the file's size: seeking back and forth in a crafted file must end."""
_FURTHER_READ = 64 * 1024 * 1024
_MAX_STREAMS = 32
_MAX_MOVIE_STREAMS = 2
"""Limit of streams in a movie: the one visible track, and a picture outside the inspected atoms."""
_MAX_BLOCK = 32 * 1024 * 1024
"""Largest allocation in bytes that FFmpeg may make: an index of 1.4 million packets; six hours of audio have
one million. A crafted file of a few hundred bytes may claim an index of gigabytes.
"""
_FREE = b"free"
_lock = threading.Lock()


class BoundedFile:
    """A file without a name, with a limit on the bytes read, however often its reader seeks back."""

    def __init__(self, source: Path | bytes) -> None:
        self._file: BinaryIO
        if isinstance(source, bytes):
            self._file, self.size = io.BytesIO(source), len(source)
        else:
            self._file, self.size = source.open("rb", buffering=0), source.stat().st_size
        self._left = self.size * _MOST_READ + _FURTHER_READ
        self._hidden: tuple[int, ...] = ()

    def strip_atoms(self, atoms: Iterable[int]) -> None:
        """Make atoms of a movie read as free space."""
        self._hidden = tuple(atoms)

    def read(self, size: int) -> bytes:
        """Return the next bytes; none once the limit is reached."""
        if self._left <= 0:
            return b""
        start = self._file.tell()
        data = self._file.read(size)
        self._left -= max(len(data), 1)
        return self._without_hidden(start, data) if self._hidden else data

    def _without_hidden(self, start: int, data: bytes) -> bytes:
        end = start + len(data)
        shown: bytearray | None = None
        for at in self._hidden:
            first, last = max(at, start), min(at + len(_FREE), end)
            if first < last:
                shown = shown or bytearray(data)
                shown[first - start : last - start] = _FREE[first - at : last - at]
        return data if shown is None else bytes(shown)

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def close(self) -> None:
        self._file.close()


def open_container(file: BoundedFile, param: str = "file") -> InputContainer:
    """Open a container for audio decoding; no file but this one is ever opened. Raises ProblemError: 400: the
    file is empty, or in no supported container.
    """
    av = import_av()
    if not file.size:
        raise invalid("The file is empty.", param)
    movie = is_mp4(file)
    if movie:
        file.strip_atoms(unneeded_atoms(file))
    file.seek(0)
    options = {
        "format_whitelist": MOVIE if movie else FORMATS,
        "codec_whitelist": _audio_decoders(),
        "protocol_whitelist": "none",
        "probesize": str(_PROBE_BYTES),
        "analyzeduration": str(_PROBE_MICROSECONDS),
        "max_streams": str(_MAX_MOVIE_STREAMS if movie else _MAX_STREAMS),
        "scan_all_pmts": "0",
    }
    try:
        container: InputContainer = av.open(
            file,
            container_options=options,
            **tolerant_of_metadata(),
            buffer_size=_BUFFER_BYTES,
            io_open=_refuse_further_files,
        )
    except (av.FFmpegError, OSError, ValueError, MemoryError) as error:
        raise undecodable(param) from error
    return container


def tolerant_of_metadata() -> dict[str, Any]:
    """Return options that make `av.open` accept titles that are not UTF-8; PyAV 19 and later need none."""
    major = int(import_av().__version__.partition(".")[0])
    return {"metadata_errors": "replace"} if major < 19 else {}


def undecodable(param: str) -> ProblemError:
    """Return the 400 error of a file that is not audio."""
    detail = (
        "This is no audio or video file that can be decoded (flac, mp3, mp4, m4a, mpeg, mpga, ogg, opus, "
        "wav, webm and the like can be)."
    )
    return invalid(detail, param)


def import_av() -> Any:
    """Return PyAV, imported once, with a limit on the size of FFmpeg's allocations."""
    with _lock:
        import av

        _bound_blocks()
        return av


@functools.cache
def _bound_blocks() -> None:
    import av._core

    try:
        # PyAV's own module is linked to libavutil, so the symbol is found through it.
        ctypes.CDLL(av._core.__file__).av_max_alloc(ctypes.c_size_t(_MAX_BLOCK))
    except (OSError, AttributeError) as error:
        log.warning("memory of decoders is not bounded", reason=str(error))


def _refuse_further_files(url: str, flags: int, options: Any) -> NoReturn:
    raise OSError("only the file itself is opened")


@functools.cache
def _audio_decoders() -> str:
    """Return the names of all audio decoders, comma-separated: no others are allowed."""
    av = import_av()
    names = []
    for name in sorted(av.codecs_available):
        try:
            if av.Codec(name, "r").type == "audio":
                names.append(name)
        except (av.FFmpegError, ValueError):
            continue  # The codec has no decoder.
    return ",".join(names)
