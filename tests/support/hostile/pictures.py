"""Hostile images of formats other than PNG, and tables of all hostile images."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Callable, Mapping
from functools import partial

from greenroom.tests.support.hostile import pngs

Maker = Callable[[], bytes]


def photo(width: int = 64, height: int = 64, kind: str = "JPEG", **options: object) -> bytes:
    """Return a valid image of smooth colors."""
    from PIL import Image

    file = io.BytesIO()
    Image.radial_gradient("L").resize((width, height)).convert("RGB").save(file, kind, **options)
    return file.getvalue()


def truncated_jpeg() -> bytes:
    """Return the first half of a JPEG file."""
    whole = photo(256, 256)
    return whole[: len(whole) // 2]


def jpeg_bomb(side: int = 65_500) -> bytes:
    """Return a JPEG whose header claims `side` x `side` pixels."""
    whole = bytearray(photo())
    start = whole.index(b"\xff\xc0") + 5
    whole[start : start + 4] = struct.pack(">HH", side, side)
    return bytes(whole)


def gif(frames: int = 10_000, side: int = 1, screen: int = 64) -> bytes:
    """Return an animated GIF with frames of `side` x `side` pixels, some 20 bytes each."""
    head = b"GIF89a" + struct.pack("<HHBBB", screen, screen, 0x80, 0, 0) + b"\0\0\0\xff\xff\xff"
    frame = b"," + struct.pack("<HHHHB", 0, 0, side, side, 0) + b"\x02\x02\x44\x01\x00"
    return head + frame * frames + b";"


def commented_gif(comment: bytes) -> bytes:
    """Return a GIF with blocks before its only frame."""
    whole = gif(frames=1)
    return whole[:19] + comment + whole[19:]


def tiff(entries: int = 0) -> bytes:
    """Return a valid TIFF, a format that the server does not support.

    Args:
        entries: Number of further pages, all equal to the first.
    """
    whole = bytearray(photo(kind="TIFF"))
    if entries:
        directory = int.from_bytes(whole[4:8], "little")
        count = int.from_bytes(whole[directory : directory + 2], "little")
        following = directory + 2 + 12 * count
        whole[following : following + 4] = struct.pack("<I", directory)
    return bytes(whole)


def webp_bomb() -> bytes:
    """Return an empty WebP that claims a canvas 16,777,216 pixels wide and high."""
    canvas = b"VP8X" + struct.pack("<I", 10) + b"\x02\0\0\0" + b"\xff" * 6
    return b"RIFF" + struct.pack("<I", 4 + len(canvas)) + b"WEBP" + canvas


def large_webp(side: int = 8_190) -> bytes:
    """Return a small valid WebP of `side` x `side` pixels in one color."""
    whole = bytearray(photo_of_one_color())
    start = whole.index(b"VP8L") + 9  # after the chunk's size and signature
    whole[start : start + 4] = struct.pack("<I", side - 1 | (side - 1) << 14)
    return bytes(whole)


def photo_of_one_color() -> bytes:
    """Return a WebP whose pixels take no bits, whatever the size of the image."""
    from PIL import Image

    file = io.BytesIO()
    Image.new("RGB", (8, 8), (1, 2, 3)).save(file, "WEBP", lossless=True)
    return file.getvalue()


def heic_without_picture() -> bytes:
    """Return the beginning of a HEIC file."""
    return struct.pack(">I4s4sI4s4s", 24, b"ftyp", b"heic", 0, b"mif1", b"heic") + struct.pack(
        ">I4sI", 12, b"meta", 0
    )


def heic(pictures: int = 1) -> bytes:
    """Return a HEIC file of `pictures` pictures."""
    from PIL import Image
    from pillow_heif import from_pillow

    picture = Image.radial_gradient("L").resize((64, 64)).convert("RGB")
    whole = from_pillow(picture)
    for _ in range(pictures - 1):
        whole.add_from_pillow(picture)
    file = io.BytesIO()
    whole.save(file)
    return file.getvalue()


def heic_bomb(side: int = 60_000) -> bytes:
    """Return a HEIC file that claims `side` x `side` pixels."""
    whole = bytearray(heic())
    start = whole.index(b"ispe") + 8
    whole[start : start + 8] = struct.pack(">II", side, side)
    return bytes(whole)


def svg() -> bytes:
    """Return an SVG that refers to another file."""
    return (
        b'<?xml version="1.0"?><!DOCTYPE svg [<!ENTITY x SYSTEM "file:///etc/passwd">]>'
        b'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9">'
        b'<image href="file:///etc/passwd"/><text>&x;</text></svg>'
    )


def postscript() -> bytes:
    """Return an EPS file, which some readers hand to Ghostscript."""
    return b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(/etc/passwd) (r) file showpage\n%%EOF\n"


def looping_exif() -> bytes:
    """Return a JPEG whose EXIF directory links to itself and has an invalid orientation."""
    directory = struct.pack("<HHHII", 1, 0x0112, 3, 1, 77) + struct.pack("<I", 8)
    exif = b"Exif\0\0II*\0" + struct.pack("<I", 8) + directory
    whole = photo()
    return whole[:2] + b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif + whole[2:]


def with_archive(image: bytes) -> bytes:
    """Return an image that is also a ZIP archive."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("evil.html", "<script>alert(1)</script>")
    return image + file.getvalue()


def with_page(image: bytes) -> bytes:
    """Return an image with HTML and a PDF header appended."""
    return image + b"<html><script>alert(1)</script></html>%PDF-1.7\n1 0 obj<<>>endobj\n%%EOF"


REFUSED: Mapping[str, Maker] = {
    "nothing": bytes,
    "one byte": lambda: b"\xff",
    "zeros": lambda: bytes(10_000),
    "text": lambda: b"This is not an image. " * 100,
    "page": lambda: b"<html><body><img src='x.png'></body></html>",
    "truncated JPEG": truncated_jpeg,
    "JPEG without pixels": lambda: photo()[:20],
    "JPEG bomb": jpeg_bomb,
    "PNG bomb": pngs.bomb,
    "PNG bomb, one row high": lambda: pngs.png(2_000_000_000, 1, color=pngs.GRAY, depth=1),
    "PNG without pixels": pngs.no_pixels,
    "PNG with a wrong checksum": pngs.wrong_checksum,
    "PNG of no width": lambda: pngs.png(0, 32),
    "GIF with 10,000 frames": gif,
    "GIF with 10,000 frames, large screen": partial(gif, screen=2_000),
    "GIF without frames": partial(gif, frames=0),
    "GIF of 65,535 x 65,535": partial(gif, frames=1, side=65_535, screen=65_535),
    "WebP bomb": webp_bomb,
    "truncated WebP": lambda: photo(kind="WEBP")[:60],
    "HEIC without picture": heic_without_picture,
    "truncated HEIC": lambda: heic()[:-20],
    "HEIC bomb": heic_bomb,
    "HEIC that says it has other pixels": partial(heic_bomb, 8_000),
    "HEIC that says it is a film": lambda: heic().replace(b"ftypheic", b"ftypisom"),
    "SVG": svg,
    "EPS": postscript,
    "TIFF": tiff,
    "TIFF whose pages go in circles": partial(tiff, entries=1),
    "JPEG of 100,001 segments": lambda: photo()[:2] + b"\xff\xfe\0\2" * 100_001 + photo()[2:],
    "JPEG of 100,001 segments behind its scan": lambda: photo()[:-2] + b"\xff\xfe\0\2" * 100_001,
    "PNG of 100,001 chunks": lambda: pngs.png(extra=(pngs.chunk(b"prIv", b""),) * 100_001),
    "PNG of 100,001 pieces of no pixels": lambda: pngs.png(extra=(pngs.chunk(b"IDAT", b""),) * 100_001),
    "GIF with a comment of 100,001 pieces": lambda: commented_gif(b"!\xfe" + b"\1a" * 100_001 + b"\0"),
    "GIF with 100,001 empty comments": lambda: commented_gif(b"!\xfe\0" * 100_001),
    "archive": lambda: with_archive(b""),
    "archive named JPEG": lambda: b"\xff\xd8\xff\xe0" + with_archive(b""),
}
"""Images to be refused with a 4xx, by name."""

ODD: Mapping[str, Maker] = {
    "PNG without some rows": pngs.missing_rows,
    "PNG with a comment of 1 GB": pngs.compressed_text,
    "PNG with an international comment of 1 GB": pngs.international_text,
    "PNG with 100,000 comments": pngs.many_texts,
    "PNG with a profile of 256 MB": pngs.color_profile,
    "PNG that promises 100,000 frames": pngs.animation,
    "PNG of one pixel": lambda: pngs.png(1, 1),
    "PNG 1,000 times as wide as high": lambda: pngs.png(4_000, 4),
    "PNG 1,000 times as high as wide": lambda: pngs.png(4, 4_000),
    "PNG of 16 bits": lambda: pngs.png(depth=16, color=pngs.RGBA),
    "JPEG with looping EXIF": looping_exif,
    "JPEG with a long filling": lambda: photo()[:-2] + b"\xff" * 1_000_000 + bytes(2),
    "JPEG that is an archive": lambda: with_archive(photo()),
    "GIF that is a page and a PDF": lambda: with_page(gif(frames=1)),
    "PNG that is a page": lambda: with_page(pngs.png()),
    "HEIC of 300 pictures": partial(heic, 300),
    "CMYK JPEG": lambda: _converted("CMYK"),
    "gray JPEG": lambda: _converted("L"),
}
"""Images that may be read (first frame, no comment), or refused with a 4xx, at no more than their cost."""

LARGE: Mapping[str, Maker] = {
    "WebP of 8,190 x 8,190": large_webp,
    "PNG of 8,000 x 8,000": partial(pngs.png, 8_000, 8_000, color=pngs.GRAY, depth=1),
}
"""Images of the maximum number of pixels in few bytes."""

WRONG_BASE64 = (
    "",
    " ",
    "!!!!",
    "iVBORw0KGgo",
    "iVBORw0KGg=o=",
    "====",
    "iVBO Rw0K\x00",
    "🦊🦊🦊🦊",
    "a" * 1_001,
    "=" * 1_000_000,
)
"""Strings that are no base64, or base64 of no image."""

WRONG_DATA_URLS = (
    "data:",
    "data:image/png;base64",
    "data:image/png;base64,",
    "data:image/png,rawdata",
    "data:;base64,aGVsbG8=",
    "data:text/html;base64,PGI+aGVsbG88L2I+",
    "data:application/octet-stream;base64,aGVsbG8=",
    "data:image/svg+xml;base64,PHN2Zy8+",
    "data:image/png;base64;base64,aGVsbG8=",
    "data:image/png;base64,%00",
    *(f"data:image/png;base64,{text}" for text in WRONG_BASE64),
)
"""`data:` URLs without an image."""


def _converted(mode: str) -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.open(io.BytesIO(photo())).convert(mode).save(file, "JPEG")
    return file.getvalue()
