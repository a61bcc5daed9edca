"""Accepted media types of images, documents and recordings."""

from __future__ import annotations

from typing import Literal

MediaKind = Literal["image", "document", "recording"]

IMAGE_TYPES = ("image/jpeg", "image/jpg", "image/png", "image/gif", "image/webp", "image/heic", "image/heif")
DOCUMENT_TYPES = ("application/pdf",)
RECORDING_TYPES = ("audio/wav", "audio/x-wav", "audio/wave", "audio/mpeg", "audio/mp3")
RECORDING_FORMATS = ("wav", "mp3")
"""Recording formats by OpenAI's names."""


def kind_of_type(media_type: str) -> MediaKind | None:
    """Return the kind of files of a media type; None if models cannot take them."""
    if media_type in IMAGE_TYPES:
        return "image"
    if media_type in DOCUMENT_TYPES:
        return "document"
    return "recording" if media_type in RECORDING_TYPES else None
