"""The image that vision models are asked about."""

from __future__ import annotations

import io

from greenroom.schemas.messages.messages import ImagePart

_SIDE = 224


def probe_image() -> ImagePart:
    """Return a PNG with a red circle on white, as wide and as high as many models see."""
    from PIL import Image, ImageDraw

    image = Image.new("RGB", (_SIDE, _SIDE), "white")
    ImageDraw.Draw(image).ellipse((_SIDE // 4, _SIDE // 4, _SIDE * 3 // 4, _SIDE * 3 // 4), fill="red")
    written = io.BytesIO()
    image.save(written, "PNG")
    return ImagePart(written.getvalue())
