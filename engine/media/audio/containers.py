"""Audio files that anybody may have sent: which containers are opened, and what they may reach."""

from __future__ import annotations

import ctypes
import functools
import io
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn

from greenroom.engine.media.audio.movie_boxes import is_movie, unneeded_boxes
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
"""Containers that are opened beside `MOVIE`, by libavformat's names: files that hold all that they play.
Playlists (HLS, DASH, concat and their like) name further files or addresses, and are not among them."""
MOVIE = "mov"
"""Of MP4, M4A and QuickTime files."""

_PROBE_BYTES = 1024 * 1024
_PROBE_MICROSECONDS = 5_000_000
_BUFFER_BYTES = 256 * 1024
_MOST_READ = 8
"""How often a file's bytes may be read: seeking to and fro in a crafted one must end."""
_FURTHER_READ = 64 * 1024 * 1024
_MAX_STREAMS = 32
_MAX_MOVIE_STREAMS = 2
"""The one track that is not hidden, and a picture that stands where it is not looked for."""
_MAX_BLOCK = 32 * 1024 * 1024
"""Bytes that FFmpeg may ask for at once: an index of 1.4 million packets; six hours of sound have a million.
A few hundred bytes may promise so many that their index would take gigabytes."""
_FREE = b"free"
_lock = threading.Lock()


class BoundedFile:
    """A file that has no name, and whose reading ends however often its reader goes back.

    Args:
        source: Where it lies, or what it holds.
    """

    def __init__(self, source: Path | bytes) -> None:
        self._file: BinaryIO
        if isinstance(source, bytes):
            self._file, self.size = io.BytesIO(source), len(source)
        else:
            self._file, self.size = source.open("rb", buffering=0), source.stat().st_size
        self._left = self.size * _MOST_READ + _FURTHER_READ
        self._hidden: tuple[int, ...] = ()

    def hide(self, boxes: Iterable[int]) -> None:
        """Have boxes of a movie read as space that is free.

        Args:
            boxes: Where their names stand.
        """
        self._hidden = tuple(boxes)

    def read(self, size: int) -> bytes:
        """Return the next bytes, or none where too many have been read."""
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
        """Go to a place in the file."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """Return the place where it is read."""
        return self._file.tell()

    def close(self) -> None:
        """Close it."""
        self._file.close()


def open_container(file: BoundedFile, param: str = "file") -> InputContainer:
    """Open a container whose audio can be decoded; nothing but the file itself is ever opened.

    Args:
        param: What the client calls the file, for errors.

    Raises:
        ProblemError: 400: it is empty, or no such container.
    """
    av = import_av()
    if not file.size:
        raise invalid("The file is empty.", param)
    movie = is_movie(file)
    if movie:
        file.hide(unneeded_boxes(file))
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
    """Return what makes `av.open` take titles that are no UTF-8: from PyAV 19 on it does so by itself."""
    major = int(import_av().__version__.partition(".")[0])
    return {"metadata_errors": "replace"} if major < 19 else {}


def undecodable(param: str) -> ProblemError:
    """Return the 400 of a file that is no audio."""
    detail = (
        "This is no audio or video file that can be decoded (flac, mp3, mp4, m4a, mpeg, mpga, ogg, opus, "
        "wav, webm and the like can be)."
    )
    return invalid(detail, param)


def import_av() -> Any:
    """Return PyAV, imported once, whose libraries take no more memory at once than files need."""
    with _lock:
        import av

        _bound_blocks()
        return av


@functools.cache
def _bound_blocks() -> None:
    import av._core

    try:
        # libavutil is found through PyAV's own module, which is linked to it.
        ctypes.CDLL(av._core.__file__).av_max_alloc(ctypes.c_size_t(_MAX_BLOCK))
    except (OSError, AttributeError) as error:
        log.warning("memory of decoders is not bounded", reason=str(error))


def _refuse_further_files(url: str, flags: int, options: Any) -> NoReturn:
    raise OSError("only the file itself is opened")


@functools.cache
def _audio_decoders() -> str:
    """Return the names of all decoders of audio: those of pictures are not even tried."""
    av = import_av()
    names = []
    for name in sorted(av.codecs_available):
        try:
            if av.Codec(name, "r").type == "audio":
                names.append(name)
        except av.FFmpegError:
            continue  # an encoder only
        except ValueError:
            continue
    return ",".join(names)
