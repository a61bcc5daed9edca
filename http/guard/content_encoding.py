"""Incremental decompression of request bodies.

Source: RFC 9110, section 8.4.1; for zstd RFC 8878 and RFC 9659.

Each piece is decompressed only when it is requested, so that a caller that counts bytes can stop a
decompression bomb.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Protocol

from werkzeug.datastructures import Headers

from greenroom.schemas.problems import Problem, ProblemError

UNSUPPORTED_ENCODING = "unsupported_content_encoding"
"""Problem code for a body with an unsupported content coding."""
PIECE = 65_536  # Largest piece of decompressed data, in bytes
MAX_FRAMES = 1_024
"""Limit on the frames of a body: a frame of a few bytes costs as much as some thousand bytes of data."""
ZSTD_WINDOW_LOG = 23  # Base-2 logarithm of the largest window: 8 MB, the limit of RFC 9659 for HTTP


class Frame(Protocol):
    """A decompressor of one frame or gzip member, with the interface of the standard library's `bz2`."""

    @property
    def eof(self) -> bool:
        """True at the end of the frame."""

    @property
    def needs_input(self) -> bool:
        """True if more output needs more input."""

    @property
    def unused_data(self) -> bytes:
        """Input after the end of the frame."""

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """Return the next bytes of output, at most `max_length`."""


class BodyDecoder:
    """Decompresses one body. `window`: largest history that a frame keeps, in bytes."""

    def __init__(self, name: str, new_frame: Callable[[], Frame], window: int) -> None:
        self.window = window
        self._name = name
        self._new_frame = new_frame
        self._frame: Frame | None = None
        self._frames = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the decompressed data in pieces of at most `PIECE` bytes. Raises ProblemError: 400: it cannot
        be decompressed.
        """
        while data or not (self._frame is None or self._frame.needs_input):
            frame = self._frame or self._begin()
            try:
                piece = frame.decompress(data, PIECE)
            except _errors() as error:
                raise self._broken(f"cannot be decompressed ({error})") from error
            self._frame, data = (None, frame.unused_data) if frame.eof else (frame, b"")
            if piece:
                yield piece

    def finish(self) -> None:
        """Check that the body is complete. Raises ProblemError (400): it is cut off."""
        if self._frame is not None or not self._frames:
            raise self._broken("ends before its data does")

    def _begin(self) -> Frame:
        self._frames += 1
        if self._frames > MAX_FRAMES:
            raise self._broken(f"has more than {MAX_FRAMES} frames")
        return self._new_frame()

    def _broken(self, why: str) -> ProblemError:
        detail = f"The body's Content-Encoding is {self._name}, but it {why}."
        return ProblemError(Problem(400, "invalid_content_encoding", detail))


class _ZlibFrame:
    """Adapter from zlib's decompressor to `Frame`. `wbits`: argument of `zlib.decompressobj`: container
    format and window size.
    """

    def __init__(self, wbits: int) -> None:
        self._object = zlib.decompressobj(wbits)
        self._is_full = False

    @property
    def eof(self) -> bool:
        return self._object.eof

    @property
    def needs_input(self) -> bool:
        return not self._is_full

    @property
    def unused_data(self) -> bytes:
        return self._object.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        piece = self._object.decompress(self._object.unconsumed_tail + data, max_length)
        self._is_full = len(piece) == max_length
        return piece


def taken_encodings() -> tuple[str, ...]:
    """Return the supported content codings, in order of preference."""
    return tuple(_codings())


def unsupported_encoding(given: str) -> Problem:
    taken = ", ".join(taken_encodings())
    detail = f"A body may come in one of {taken} or without Content-Encoding, not in {given!r}."
    return Problem(415, UNSUPPORTED_ENCODING, detail)


def content_encoding(headers: Headers) -> str:
    """Return the content coding from a request's headers; several are joined."""
    return ", ".join(headers.getlist("Content-Encoding"))


def new_decoder(encoding: str) -> BodyDecoder | None:
    """Return a decoder for a content coding; None if the body is not compressed. Raises ProblemError: 415 for
    an unknown coding, and for several of them.
    """
    name = encoding.strip().lower()
    if name in ("", "identity"):
        return None
    name = "gzip" if name == "x-gzip" else name
    coding = _codings().get(name)
    if coding is None:
        raise ProblemError(unsupported_encoding(encoding[:40]))
    return BodyDecoder(name, *coding)


def _codings() -> Mapping[str, tuple[Callable[[], Frame], int]]:
    largest = 1 << zlib.MAX_WBITS
    plain: dict[str, tuple[Callable[[], Frame], int]] = {
        "gzip": (partial(_ZlibFrame, 16 + zlib.MAX_WBITS), largest),
        "deflate": (partial(_ZlibFrame, zlib.MAX_WBITS), largest),
    }
    return {"zstd": (_zstd_frame, 1 << ZSTD_WINDOW_LOG), **plain} if zstd_library() else plain


def _errors() -> tuple[type[Exception], ...]:
    zstd = zstd_library()
    return (zlib.error, zstd.ZstdError) if zstd else (zlib.error,)


def _zstd_frame() -> Frame:
    zstd = zstd_library()
    frame: Frame = zstd.ZstdDecompressor(
        options={zstd.DecompressionParameter.window_log_max: ZSTD_WINDOW_LOG}
    )
    return frame


def zstd_library() -> Any:
    """Return the module, which the standard library has from Python 3.14 on; None if it is not installed."""
    try:
        if sys.version_info >= (3, 14):
            from compression import zstd
        else:
            from backports import zstd
    except ImportError:
        return None
    return zstd
