"""Images and audio in a conversation, for templates that take content parts or only text."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

import attrs

from greenroom.engine.adapters.templates.chat_template import TemplateMessage
from greenroom.engine.tokenizer.control_tokens import IMAGE, ControlTokenMarker
from greenroom.schemas.messages.messages import ContentPart, ImagePart, TextPart

Medium = Literal["image", "audio"]
"""Type of a content part that is not text, as templates name it."""

IMAGE_NUMBER = re.compile(f"{IMAGE}([a-z]+)(\\d+){IMAGE}")
"""Placeholder of an image or audio in text: its medium and number."""

NO_MEDIA: Mapping[str, Collection[str]] = {}
"""Media parts by role for a template that takes only text."""

_NUMBER_FIELD = "greenroom_number"
"""Key of a part's number, which templates ignore."""


@attrs.frozen
class RenderedImage(ImagePart):
    """An image or audio of the model's input, processed for its prompt.

    Args:
        number: Number of the image in its request.
        tokens: Number of its tokens in the prompt.
        processed: Output of the model's processor.
        medium: Medium of the part.
    """

    number: int = attrs.field(kw_only=True)
    tokens: int = attrs.field(kw_only=True)
    processed: Any = attrs.field(kw_only=True, eq=False, repr=False)
    medium: Medium = attrs.field(default="image", kw_only=True)


def marked_text(content: Sequence[ContentPart], marker: ControlTokenMarker) -> str:
    """Return content as one text, with control tokens marked and images as numbered placeholders."""
    pieces: list[str] = []
    text = ""
    for part in content:
        match part:
            case TextPart():
                # Joined before marking, since two parts could form one token.
                text += part.text
            case RenderedImage():
                pieces += [marker.text(text), f"{IMAGE}{part.medium}{part.number}{IMAGE}"]
                text = ""
    return "".join([*pieces, marker.text(text)])


def with_image_parts(message: TemplateMessage, media: Collection[str]) -> TemplateMessage:
    """Return a message whose image placeholders are replaced with content parts.

    Args:
        message: Message with placeholders in its text.
        media: Media that may be parts.
    """
    content = message.get("content")
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
    if not any(IMAGE in (part.get("text") or "") for part in parts):
        return message
    split: list[dict[str, Any]] = []
    for part in parts:
        if part.get("type") != "text":
            split.append(part)
            continue
        split += _split(str(part["text"]), media)
    return {**message, "content": split}


def _split(text: str, media: Collection[str]) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    at = 0
    for match in IMAGE_NUMBER.finditer(text):
        if match[1] not in media:
            continue
        if match.start() > at:
            parts.append({"type": "text", "text": text[at : match.start()]})
        parts.append({"type": match[1], _NUMBER_FIELD: int(match[2])})
        at = match.end()
    if at < len(text) or not parts:
        parts.append({"type": "text", "text": text[at:]})
    return parts


def numbers_in_parts(messages: Sequence[TemplateMessage]) -> tuple[int, ...]:
    """Return the numbers of the images that are content parts, in order."""
    contents = (message["content"] for message in messages if isinstance(message.get("content"), list))
    return tuple(part[_NUMBER_FIELD] for content in contents for part in content if _NUMBER_FIELD in part)
