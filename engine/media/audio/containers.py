"""Safe opening of untrusted audio files: allowed containers, and bounds on reads and memory."""

from __future__ import annotations

import ctypes
import functools
import io
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn

from greenroom.engine.media.audio.mp4_atoms import is_mp4, unneeded_atoms
from greenroom.schemas.logs import get_logger
from greenroom.schemas.problems import ProblemError, invalid

if TYPE_CHECKING:
    from av.container import InputContainer

log = get_logger(__name__)

FORMATS = (
    "aac",
    "ac3",
    "aiff",
    "amr",
    "amrnb",
    "amrwb",
    "ape",
    "asf",
    "au",
    "avi",
    "caf",
    "dts",
    "eac3",
    "flac",
    "flv",
    "matroska",
    "mp3",
    "mpeg",
    "mpegts",
    "nut",
    "ogg",
    "oma",
    "tta",
    "voc",
    "w64",
    "wav",
    "wv",
)
"""Containers that are opened besides `MOVIE`, by libavformat's names: files that hold all that they play.

Playlists (HLS, DASH, concat and the like) are excluded, since they name further files or addresses.
"""
MOVIE = "mov"
"""Container of MP4, M4A and QuickTime files."""

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
    """A file without a name, with a limit on the bytes read, however often its reader seeks back.

    Args:
        source: Path or content of the file.
    """

    def __init__(self, source: Path | bytes) -> None:
        self._file: BinaryIO
        if isinstance(source, bytes):
            self._file, self.size = io.BytesIO(source), len(source)
        else:
            self._file, self.size = source.open("rb", buffering=0), source.stat().st_size
        self._left = self.size * _MOST_READ + _FURTHER_READ
        self._hidden: tuple[int, ...] = ()

    def strip_atoms(self, atoms: Iterable[int]) -> None:
        """Make atoms of a movie read as free space.

        Args:
            atoms: Offsets of the atoms' names.
        """
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
    """Open a container for audio decoding; no file but this one is ever opened.

    Args:
        param: The file's parameter name, for errors.

    Raises:
        ProblemError: 400: the file is empty, or in no supported container.
    """
    av = import_av()
    if not file.size:
        raise invalid("The file is empty.", param)
    movie = is_mp4(file)
    if movie:
        file.strip_atoms(unneeded_atoms(file))
    file.seek(0)
    options = {
        "format_whitelist": MOVIE if movie else ",".join(FORMATS),
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
        except av.FFmpegError:
            continue  # The codec has no decoder.
        except ValueError:
            continue
    return ",".join(names)
