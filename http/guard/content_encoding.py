"""Bodies that come compressed, decompressed piece by piece.

Source: RFC 9110, section 8.4.1; for zstd RFC 8878 and RFC 9659.

No piece is made before the one before it was taken, so that whoever counts them bounds what a bomb costs.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import Protocol

from werkzeug.datastructures import Headers

from greenroom.schemas.problems import Problem, ProblemError

UNSUPPORTED_ENCODING = "unsupported_content_encoding"
"""Code of the problem of a body in another coding than those that are taken."""
PIECE = 65_536
"""Bytes that are decompressed at once."""
MAX_FRAMES = 1_024
"""Of one body: each costs as much to begin as some thousand bytes do, and may be a few bytes long."""
ZSTD_WINDOW_LOG = 23
"""Of the largest window: 8 MB, as RFC 9659 has it for HTTP."""


class Frame(Protocol):
    """A frame, or member, that is decompressed; in the standard library's own shape, as of `bz2`."""

    @property
    def eof(self) -> bool:
        """Whether its end has been reached."""

    @property
    def needs_input(self) -> bool:
        """Whether nothing more can be told without more data."""

    @property
    def unused_data(self) -> bytes:
        """Data behind its end."""

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """Return the next bytes, at most so many."""


class BodyDecoder:
    """Decompresses one body.

    Args:
        name: Of its coding.
        new_frame: Begins a frame of it.
        window: Bytes that a frame may keep of what it has told.
    """

    def __init__(self, name: str, new_frame: Callable[[], Frame], window: int) -> None:
        self.window = window
        self._name = name
        self._new_frame = new_frame
        self._frame: Frame | None = None
        self._frames = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield what further data decompresses to, in pieces of at most `PIECE` bytes.

        Raises:
            ProblemError: 400: it cannot be decompressed.
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
        """Check that the body has ended where it may.

        Raises:
            ProblemError: 400: it is cut off.
        """
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
    """What zlib decompresses, in the shape of the others.

    Args:
        wbits: As `zlib.decompressobj` has it: which container, and how large a window.
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
    """Return the codings in which bodies may come, the best first."""
    return tuple(_codings())


def unsupported_encoding(given: str) -> Problem:
    """Return the problem of a body in a coding that is none of them."""
    taken = ", ".join(taken_encodings())
    detail = f"A body may come in one of {taken} or without Content-Encoding, not in {given!r}."
    return Problem(415, UNSUPPORTED_ENCODING, detail)


def content_encoding(headers: Headers) -> str:
    """Return what a request's headers say of its body's coding; several are joined."""
    return ", ".join(headers.getlist("Content-Encoding"))


def new_decoder(encoding: str) -> BodyDecoder | None:
    """Return what decompresses a body, given its Content-Encoding; None if it comes as it is.

    Raises:
        ProblemError: 415 for a coding that is not known, and for several of them.
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
    """Return what begins a frame of each coding, and its window."""
    largest = 1 << zlib.MAX_WBITS
    plain: dict[str, tuple[Callable[[], Frame], int]] = {
        "gzip": (partial(_ZlibFrame, 16 + zlib.MAX_WBITS), largest),
        "deflate": (partial(_ZlibFrame, zlib.MAX_WBITS), largest),
    }
    return {"zstd": (_zstd_frame, 1 << ZSTD_WINDOW_LOG), **plain} if _zstd_errors() else plain


def _errors() -> tuple[type[Exception], ...]:
    return (zlib.error, *_zstd_errors())


def _zstd_frame() -> Frame:
    from greenroom.http.guard.zstd_library import zstd

    return zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: ZSTD_WINDOW_LOG})


@cache
def _zstd_errors() -> tuple[type[Exception], ...]:
    """Return what its decompressing raises; nothing where it is not there."""
    try:
        from greenroom.http.guard.zstd_library import zstd
    except ImportError:
        return ()
    return (zstd.ZstdError,)
