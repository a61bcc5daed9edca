"""Detection of a file's format by its first bytes; names and declared types are ignored."""

from __future__ import annotations

import re
from typing import Literal

Format = Literal["JPEG", "PNG", "GIF", "WebP", "HEIC"]
"""Image formats that are decoded."""

KNOWN = "JPEG, PNG, GIF, WebP or HEIC"
"""Names of the image formats that are decoded, for error messages."""

PDF = b"%PDF-"
_PDF_REACH = 1_024
"""Bytes in which a PDF's header may begin, as readers accept it. Source: PDF 1.7, annex H, note 13."""

_HEIC_BRANDS = frozenset({b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"})

_OTHERS: tuple[tuple[re.Pattern[bytes], str], ...] = (
    (re.compile(rb"\s*<[?!]?\w.{0,900}?<svg\b|\s*<svg\b", re.DOTALL), "SVG"),
    (re.compile(rb"II\*\0|MM\0\*|II\+\0|MM\0\+"), "TIFF"),
    (re.compile(rb"BM.{12}[\x0c\x28\x38\x40\x6c\x7c]\0\0\0", re.DOTALL), "BMP"),
    (re.compile(rb"\0\0[\x01\x02]\0"), "ICO"),
    (re.compile(rb".{4}ftyp(?:avif|avis)", re.DOTALL), "AVIF"),
    (re.compile(rb"\xff\x0a|\0\0\0\x0cJXL "), "JPEG XL"),
    (re.compile(rb"\0\0\0\x0cjP  |\xff\x4f\xff\x51"), "JPEG 2000"),
    (re.compile(rb"8BPS"), "Photoshop"),
    (re.compile(rb"%!PS|\xc5\xd0\xd3\xc6"), "PostScript"),
    (re.compile(rb"PK\x03\x04|PK\x05\x06"), "a ZIP archive"),
    (re.compile(rb"\s*(?:<!DOCTYPE\s+html|<html)", re.IGNORECASE), "an HTML page"),
    (re.compile(rb".{4}ftyp|\x1a\x45\xdf\xa3|RIFF.{4}AVI ", re.DOTALL), "a video"),
)


def format_of(data: bytes) -> Format | None:
    """Return an image's format; None if it is not supported."""
    if data.startswith(b"\xff\xd8\xff"):
        return "JPEG"
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "PNG"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "GIF"
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "WebP"
    if data[4:8] == b"ftyp" and data[8:12] in _HEIC_BRANDS and b"avif" not in data[8:64]:
        return "HEIC"
    return None


def is_pdf(data: bytes) -> bool:
    return PDF in data[:_PDF_REACH]


def name_of(data: bytes) -> str:
    """Return a readable name for an unexpected file type."""
    if not data:
        return "empty"
    if is_pdf(data):
        return "a PDF"
    if (kind := format_of(data)) is not None:
        return f"an image ({kind})"
    head = data[:1_024]
    for pattern, name in _OTHERS:
        if pattern.match(head):
            return name
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start < max(1, len(head) - 4):
            return "in no format that is known here"
    return "text" if b"\0" not in head else "in no format that is known here"
