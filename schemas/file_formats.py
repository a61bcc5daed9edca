"""Detection of file formats by their first bytes, whatever their name or content type says."""

from __future__ import annotations

from typing import Literal

ImageFormat = Literal["jpeg", "png", "gif", "webp", "heic"]

_BEGINNINGS: tuple[tuple[bytes, ImageFormat], ...] = (
    (b"\xff\xd8\xff", "jpeg"),
    (b"\x89PNG", "png"),
    (b"GIF8", "gif"),
)
_HEIC_BRANDS = (b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"mif1", b"msf1")
_PDF = b"%PDF-"
_PDF_BEGINS_WITHIN = 1024
"""Bytes in which a PDF's header may begin, as readers accept it. Source: PDF 1.7, annex H, note 13."""


def image_format(data: bytes) -> ImageFormat | None:
    """Return the format of an image file; None if it is not supported."""
    for beginning, found in _BEGINNINGS:
        if data.startswith(beginning):
            return found
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "webp"
    is_heic = data[4:8] == b"ftyp" and data[8:12] in _HEIC_BRANDS and b"avif" not in data[8:64]
    return "heic" if is_heic else None


def is_pdf(data: bytes) -> bool:
    """Return whether a file is a PDF."""
    return _PDF in data[:_PDF_BEGINS_WITHIN]
