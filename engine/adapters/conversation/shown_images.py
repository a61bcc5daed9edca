"""Images in a conversation on its way through a template, which may know parts or text alone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import attrs

from greenroom.engine.adapters.templates.chat_template import TemplateMessage
from greenroom.engine.tokenizer.control_tokens import IMAGE, ControlTokenMarker
from greenroom.schemas.messages import ContentPart, ImagePart, TextPart

IMAGE_NUMBER = re.compile(f"{IMAGE}(\\d+){IMAGE}")
"""An image in text."""

_NUMBER_FIELD = "greenroom_image"
"""Of an image's part, which templates do not look at."""


@attrs.frozen
class ShownImage(ImagePart):
    """An image that the model is shown, ready for its prompt.

    Args:
        number: Its own in this request.
        tokens: That it takes in the prompt.
        processed: What the model's processor has made of it.
    """

    number: int = attrs.field(kw_only=True)
    tokens: int = attrs.field(kw_only=True)
    processed: Any = attrs.field(kw_only=True, eq=False, repr=False)


def marked_text(content: Sequence[ContentPart], marker: ControlTokenMarker) -> str:
    """Return content as one text: control tokens marked, images as their numbers."""
    pieces: list[str] = []
    text = ""
    for part in content:
        match part:
            case TextPart():
                # A token must not be put together from two parts.
                text += part.text
            case ShownImage():
                pieces += [marker.text(text), f"{IMAGE}{part.number}{IMAGE}"]
                text = ""
    return "".join([*pieces, marker.text(text)])


def with_image_parts(message: TemplateMessage) -> TemplateMessage:
    """Return a message whose images are parts of its content instead of numbers in its text."""
    content = message.get("content")
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
    if not any(IMAGE in (part.get("text") or "") for part in parts):
        return message
    split: list[dict[str, Any]] = []
    for part in parts:
        if part.get("type") != "text":
            split.append(part)
            continue
        for index, piece in enumerate(IMAGE_NUMBER.split(str(part["text"]))):
            if index % 2:
                split.append({"type": "image", _NUMBER_FIELD: int(piece)})
            elif piece:
                split.append({"type": "text", "text": piece})
    return {**message, "content": split}


def numbers_in_parts(messages: Sequence[TemplateMessage]) -> tuple[int, ...]:
    """Return the numbers of the images that are parts, in order."""
    contents = (message["content"] for message in messages if isinstance(message.get("content"), list))
    return tuple(part[_NUMBER_FIELD] for content in contents for part in content if _NUMBER_FIELD in part)
