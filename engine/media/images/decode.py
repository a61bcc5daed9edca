"""Decoding of an image file to pixels, with limits checked before memory is allocated."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

from PIL import GifImagePlugin, Image, ImageFile, JpegImagePlugin, PngImagePlugin, WebPImagePlugin

from greenroom.engine.media.images.file_structure import BrokenFileError, check_frames, plain_jpeg, webp_size
from greenroom.engine.media.images.formats import KNOWN, Format, format_of, name_of
from greenroom.engine.media.images.limits import ANY_SIZE, ImageLimits, ResolutionLimit
from greenroom.engine.media.images.orientation import orientation_of, upright
from greenroom.schemas.problems import Problem, ProblemError, invalid

INVALID_IMAGE = "invalid_image"
"""Problem code of a file that cannot be decoded."""

LARGE = 4 * 1024 * 1024
"""Pixels above which decoding would hold the GIL longer than others can wait."""
_LARGE_JPEG = 16 * 1024 * 1024
"""Pixels up to which a JPEG counts at its reduced size: it is decoded in pieces and downscaled meanwhile."""

_PAPER = (255, 255, 255)
"""Background color behind transparent pixels."""


def decode_image(
    data: bytes,
    limits: ImageLimits = ImageLimits(),  # noqa: B008
    *,
    resolution: ResolutionLimit = ANY_SIZE,
    param: str | None = None,
) -> Image.Image:
    """Return an image as upright RGB; of an animation, the first frame.

    Args:
        resolution: Largest size the model uses; a much larger image is downscaled while it is decoded.
        param: The image's parameter name, for errors.

    Raises:
        ProblemError: 400 that says what is wrong with the file and what is accepted.
    """
    if len(data) > limits.bytes_each:
        limit = limits.bytes_each // 1_000_000
        detail = f"{_named(param)} has {len(data):,} bytes; an image may have at most {limit} MB."
        raise invalid(detail, param, "image_too_large")
    kind = format_of(data)
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
    kind = format_of(data)
    if kind is None or len(data) > limits.bytes_each:
        return False
    try:
        width, height = _size(data, kind)
    except Exception:  # `decode_image` reports the error.
        return False
    if width * height > limits.pixels:
        return False
    if kind == "JPEG" and width * height <= _LARGE_JPEG:
        return width * height / resolution.reduction(width, height) ** 2 > LARGE
    return width * height > LARGE


def _size(data: bytes, kind: Format) -> tuple[int, int]:
    if kind == "WebP":
        return webp_size(data)
    if kind == "JPEG":
        data, _ = plain_jpeg(data)
    with _OPENERS[kind](io.BytesIO(data)) as image:
        return image.size


def _reason(error: Exception) -> str:
    """Return a decoder's message, or a generic one if the error is about Python rather than the file."""
    said = str(error).strip().splitlines()
    is_about_file = isinstance(error, OSError | SyntaxError | ValueError) and said
    return said[0][:200] if is_about_file else "it is damaged, or cut off"


def _decode(
    data: bytes, kind: Format, limits: ImageLimits, resolution: ResolutionLimit, param: str | None
) -> Image.Image:
    orientation = 0
    if kind == "JPEG":
        data, orientation = plain_jpeg(data)
    elif kind == "GIF":
        check_frames(data)
    elif kind == "WebP":
        _check_size(webp_size(data), limits, param)
    with _OPENERS[kind](io.BytesIO(data)) as image:
        _check_size(image.size, limits, param)
        if kind == "JPEG":
            factor = resolution.reduction(*image.size)
            image.draft(None, (-(-image.width // factor), -(-image.height // factor)))
        image.load()
        if not orientation and kind != "HEIC":  # libheif applies the orientation itself.
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
    """Return the image as RGB, on white where it is transparent."""
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


_OPENERS: dict[Format, Callable[[Any], Image.Image]] = {
    "JPEG": _open_jpeg,
    "PNG": PngImagePlugin.PngImageFile,
    "GIF": GifImagePlugin.GifImageFile,
    "WebP": WebPImagePlugin.WebPImageFile,
    "HEIC": _open_heic,
}
"""Pillow's reader for each format: on a broken file, `Image.open` would try other formats too."""


def _named(param: str | None) -> str:
    return f"`{param}`" if param else "The image"


def _broken(kind: Format, reason: str, param: str | None) -> ProblemError:
    detail = f"{_named(param)} is a {kind} file that cannot be decoded: {reason.rstrip('.')}."
    return invalid(detail, param, INVALID_IMAGE)
