"""PNG files made of single chunks: small on the wire, and huge, odd or broken when decoded."""

from __future__ import annotations

import struct
import zlib

SIGNATURE = b"\x89PNG\r\n\x1a\n"
GRAY, RGB, RGBA = 0, 2, 6
"""Color types; `_SAMPLES` has their samples per pixel."""
_SAMPLES = {GRAY: 1, RGB: 3, RGBA: 4}
_REPEATED = 1 << 20
"""Number of zeros compressed once; repeating the result makes gigabytes in milliseconds."""


def chunk(kind: bytes, data: bytes) -> bytes:
    """Return a chunk with length and checksum."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def compressed_zeros(count: int) -> bytes:
    """Return a zlib stream of a thousandth of the size that inflates to `count` zeros."""
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    once = deflate.compress(bytes(_REPEATED)) + deflate.flush(zlib.Z_FULL_FLUSH)
    # After a full flush, the output has no back references and can be repeated.
    rest = zlib.compressobj(9, zlib.DEFLATED, -15)
    last = rest.compress(bytes(count % _REPEATED)) + rest.flush()
    adler = (count % 65521) << 16 | 1
    return b"\x78\xda" + once * (count // _REPEATED) + last + struct.pack(">I", adler)


def header(width: int, height: int, color: int = RGB, depth: int = 8) -> bytes:
    """Return the PNG signature and the header chunk."""
    return SIGNATURE + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0))


def png(
    width: int = 32, height: int = 32, *, color: int = RGB, depth: int = 8, extra: tuple[bytes, ...] = ()
) -> bytes:
    """Return a valid black image.

    Args:
        extra: Whole chunks between header and pixels.
    """
    row = 1 + -(-width * _SAMPLES[color] * depth // 8)
    pixels = chunk(b"IDAT", compressed_zeros(row * height))
    return header(width, height, color, depth) + b"".join(extra) + pixels + chunk(b"IEND", b"")


def bomb(side: int = 50_000) -> bytes:
    """Return a valid image of `side` x `side` pixels; for 50,000, 300 KB on the wire and 7.5 GB as RGB."""
    return png(side, side, color=GRAY, depth=1)


def compressed_text(size: int = 1 << 30) -> bytes:
    """Return a valid image with a comment (zTXt) that inflates to `size` bytes."""
    return png(extra=(chunk(b"zTXt", b"Comment\0\0" + compressed_zeros(size)),))


def international_text(size: int = 1 << 30) -> bytes:
    """Return a valid image with a compressed UTF-8 comment (iTXt) that inflates to `size` bytes."""
    return png(extra=(chunk(b"iTXt", b"Comment\0\1\0en\0\0" + compressed_zeros(size)),))


def many_texts(count: int = 100_000) -> bytes:
    """Return a valid image with `count` short comments."""
    return png(extra=(chunk(b"tEXt", b"a\0b"),) * count)


def color_profile(size: int = 1 << 28) -> bytes:
    """Return a valid image with an ICC profile that inflates to `size` zeros, which is no valid profile."""
    return png(extra=(chunk(b"iCCP", b"x\0\0" + compressed_zeros(size)),))


def animation(frames: int = 100_000, side: int = 32) -> bytes:
    """Return an APNG that claims `frames` frames and has one."""
    return png(side, side, extra=(chunk(b"acTL", struct.pack(">II", frames, 0)),))


def wrong_checksum() -> bytes:
    """Return an image with a wrong header checksum."""
    whole = bytearray(png())
    whole[len(SIGNATURE) + 8 + 13] ^= 0xFF
    return bytes(whole)


def missing_rows() -> bytes:
    """Return an image whose pixel data is truncated."""
    pixels = zlib.compress(bytes(97 * 10))
    return header(32, 32) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def no_pixels() -> bytes:
    """Return an image that ends after its header."""
    return header(32, 32) + chunk(b"IEND", b"")
