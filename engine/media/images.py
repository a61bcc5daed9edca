"""Decoding of an image file to pixels, upright, with limits checked before memory is allocated."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable
from typing import Any

import attrs
from PIL import GifImagePlugin, Image, ImageFile, JpegImagePlugin, PngImagePlugin, WebPImagePlugin

from greenroom.engine.media.file_structure import (
    BrokenFileError,
    check_chunks,
    check_frames,
    orientation_of,
    plain_jpeg,
    upright,
    webp_size,
)
from greenroom.schemas.file_formats import ImageFormat, image_format, is_pdf
from greenroom.schemas.problems import Problem, ProblemError, invalid

DETAIL_LOW = 512
"""Longer side in pixels of an image with `detail: low`.

Source: OpenAI's guide "Images and vision", detail levels.
"""


@attrs.frozen
class ImageLimits:
    """Limits of a request's images, checked before memory is allocated.

    Args:
        bytes_each: Size of one file in bytes.
        bytes_together: Size of all images, documents and recordings of a request in bytes.
        pixels: Pixels of one image; most phones' sensors have fewer.
        pages: Number of pages per request, over all its documents.
        single: True if the model takes only one image or page, whatever the settings.
    """

    bytes_each: int = 20 << 20
    bytes_together: int = 50 << 20
    pixels: int = 64 * 1024 * 1024
    images: int = 5
    pages: int = 20
    single: bool = False


@attrs.frozen
class ResolutionLimit:
    """The largest image that a model's processor does not downscale.

    Args:
        width: Width in pixels; None for no limit.
        height: Height in pixels; None for no limit.
        area: Area in pixels; None for no limit.
    """

    width: int | None = None
    height: int | None = None
    area: int | None = None

    def reduction(self, width: int, height: int) -> int:
        """Return the largest integer by which both sides can be divided without losing visible detail."""
        factors = [
            *([width / self.width] if self.width else []),
            *([height / self.height] if self.height else []),
            *([math.sqrt(width * height / self.area)] if self.area else []),
        ]
        # With a limit per side, the processor may scale each side alone; the smaller factor is safe for both.
        return max(1, int(min(factors, default=1)))


ANY_SIZE = ResolutionLimit()  # No limit: nothing is downscaled


INVALID_IMAGE = "invalid_image"  # Problem code of a file that cannot be decoded

LARGE = 4 * 1024 * 1024  # Pixels above which decoding would hold the GIL longer than others can wait
_LARGE_JPEG = 16 * 1024 * 1024
"""Pixels up to which a JPEG counts at its reduced size: it is decoded in pieces and downscaled meanwhile."""

_PAPER = (255, 255, 255)  # Background color behind transparent pixels


def decode_image(
    data: bytes,
    limits: ImageLimits = ImageLimits(),
    *,
    resolution: ResolutionLimit = ANY_SIZE,
    param: str | None = None,
) -> Image.Image:
    """Return an image as upright RGB; of an animation, the first frame.

    Args:
        resolution: Largest size the model uses; a much larger image is downscaled while it is decoded.

    Raises:
        ProblemError: 400 that says what is wrong with the file and what is accepted.
    """
    if len(data) > limits.bytes_each:
        limit = limits.bytes_each >> 20
        detail = f"{_named(param)} has {len(data):,} bytes; an image may have at most {limit} MB."
        raise invalid(detail, param, "image_too_large")
    kind = image_format(data)
    if kind is None:
        detail = f"{_named(param)} is {name_of(data)}; images must be {KNOWN}."
        raise invalid(detail, param, INVALID_IMAGE)
    try:
        return _decode(data, kind, limits, resolution, param)
    except ProblemError:
        raise
    except BrokenFileError as error:
        raise _broken(kind, str(error), param) from None
    except MemoryError:
        raise _broken(kind, "it takes more memory than there is", param) from None
    except Exception as error:  # On crafted files decoders may raise anything.
        raise _broken(kind, _reason(error), param) from None


def is_large(data: bytes, limits: ImageLimits, resolution: ResolutionLimit) -> bool:
    """Return whether decoding an image takes long, by its header; False for files that are rejected."""
    kind = image_format(data)
    if kind is None or len(data) > limits.bytes_each:
        return False
    try:
        width, height = _size(data, kind)
    except Exception:  # `decode_image` reports the error.
        return False
    if width * height > limits.pixels:
        return False
    if kind == "jpeg" and width * height <= _LARGE_JPEG:
        return width * height / resolution.reduction(width, height) ** 2 > LARGE
    return width * height > LARGE


def _size(data: bytes, kind: ImageFormat) -> tuple[int, int]:
    if kind == "webp":
        return webp_size(data)
    with _OPENERS[kind](io.BytesIO(_plain(data, kind)[0])) as image:
        return image.size


def _plain(data: bytes, kind: ImageFormat) -> tuple[bytes, int]:
    """Return a file as its decoder gets it, and the orientation that was in the rest, or 0. Raises
    BrokenFileError: the file's structure is costly.
    """
    if kind == "jpeg":
        return plain_jpeg(data)
    if kind == "gif":
        check_frames(data)
    elif kind == "png":
        check_chunks(data)
    return data, 0


def _reason(error: Exception) -> str:
    """Return a decoder's message, or a generic one if the error is about Python rather than the file."""
    said = str(error).strip().splitlines()
    is_about_file = isinstance(error, OSError | SyntaxError | ValueError) and said
    return said[0][:200] if is_about_file else "it is damaged, or cut off"


def _decode(
    data: bytes, kind: ImageFormat, limits: ImageLimits, resolution: ResolutionLimit, param: str | None
) -> Image.Image:
    data, orientation = _plain(data, kind)
    if kind == "webp":
        _check_size(webp_size(data), limits, param)
    with _OPENERS[kind](io.BytesIO(data)) as image:
        _check_size(image.size, limits, param)
        if kind == "jpeg":
            factor = resolution.reduction(*image.size)
            image.draft(None, (-(-image.width // factor), -(-image.height // factor)))
        image.load()
        if not orientation and kind != "heic":  # libheif applies the orientation itself.
            exif = image.info.get("exif")
            orientation = orientation_of(exif) if isinstance(exif, bytes) else 1
        pixels = _in_bytes(image)
        factor = resolution.reduction(*pixels.size)
        if factor > 1:
            pixels = pixels.reduce(factor)
        return upright(_opaque(pixels), orientation)


def _check_size(size: tuple[int, int], limits: ImageLimits, param: str | None) -> None:
    width, height = size
    if width < 1 or height < 1:
        raise invalid(f"{_named(param)} has no pixels.", param, INVALID_IMAGE)
    if width * height > limits.pixels:
        detail = (
            f"{_named(param)} has {width:,} x {height:,} pixels; an image may have at most "
            f"{limits.pixels:,} together. Send a smaller image."
        )
        raise invalid(detail, param, "image_too_large")


def _in_bytes(image: Image.Image) -> Image.Image:
    """Return the image with 8 bits per channel, in a mode whose pixels can be averaged."""
    if image.mode.startswith(("I", "F")):
        import numpy as np

        values = np.asarray(image)
        shifted = values >> 8 if values.dtype.kind in "iu" else values
        return Image.fromarray(np.clip(shifted, 0, 255).astype(np.uint8))
    if image.mode in ("P", "PA", "1") or "transparency" in image.info:
        return image.convert("RGBA" if image.has_transparency_data else "RGB")
    return image


def _opaque(image: Image.Image) -> Image.Image:
    if image.mode in ("RGBA", "LA", "La", "RGBa"):
        image = image.convert("RGBA")
        paper = Image.new("RGB", image.size, _PAPER)
        paper.paste(image, mask=image.getchannel("A"))
        return paper
    return image if image.mode == "RGB" and type(image) is Image.Image else image.convert("RGB").copy()


def _open_heic(file: io.BytesIO) -> Image.Image:
    try:
        from pillow_heif import HeifImageFile
    except ImportError:
        detail = "Images in HEIC need the library pillow-heif: `pip install pillow-heif`."
        raise ProblemError(Problem(501, "library_missing", detail)) from None
    return HeifImageFile(file)  # type: ignore[no-untyped-call]


def _open_jpeg(file: io.BytesIO) -> ImageFile.ImageFile:
    return JpegImagePlugin.JpegImageFile(file)


_OPENERS: dict[ImageFormat, Callable[[Any], Image.Image]] = {
    "jpeg": _open_jpeg,
    "png": PngImagePlugin.PngImageFile,
    "gif": GifImagePlugin.GifImageFile,
    "webp": WebPImagePlugin.WebPImageFile,
    "heic": _open_heic,
}
"""Pillow's reader for each format: on a broken file, `Image.open` would try other formats too."""


def _named(param: str | None) -> str:
    return f"`{param}`" if param else "The image"


def _shown(kind: ImageFormat) -> str:
    return "WebP" if kind == "webp" else kind.upper()


def _broken(kind: ImageFormat, reason: str, param: str | None) -> ProblemError:
    detail = f"{_named(param)} is a {_shown(kind)} file that cannot be decoded: {reason.rstrip('.')}."
    return invalid(detail, param, INVALID_IMAGE)


KNOWN = "JPEG, PNG, GIF, WebP or HEIC"  # Names of the image formats that are decoded, for error messages

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


def name_of(data: bytes) -> str:
    """Return a readable name for an unexpected file type."""
    if not data:
        return "empty"
    if is_pdf(data):
        return "a PDF"
    if (kind := image_format(data)) is not None:
        return f"an image ({_shown(kind)})"
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
