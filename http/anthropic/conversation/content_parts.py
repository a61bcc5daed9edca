"""Content blocks of all kinds as protocol-independent parts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from greenroom.http.anthropic.conversation.content_text import (
    block_text,
    blocks_of,
    join_blocks,
    refuse_citations,
    source_content,
)
from greenroom.http.media.media_reader import MediaReader, unknown_file
from greenroom.schemas.anthropic.messages import BlockParam, Content
from greenroom.schemas.messages.messages import ContentPart, ImagePart, TextPart
from greenroom.schemas.problems import invalid, missing


def block_parts(block: BlockParam, field: str, media: MediaReader) -> Sequence[ContentPart]:
    """Return the parts of a text, image, document or search result block.

    Args:
        field: Path of the block in the request.
        media: Media reader of the request.

    Raises:
        ProblemError: 400 that names the field.
    """
    match block.type:
        case "image":
            return (_image(block, f"{field}.source", media),)
        case "document":
            return _document(block, field, media)
        case _:
            return (TextPart(block_text(block, field)),)


def content_parts(content: Content | None, field: str, media: MediaReader) -> Sequence[ContentPart]:
    """Return the parts of a block's content.

    Raises:
        ProblemError: 400 that names the field.
    """
    blocks = enumerate(blocks_of(content, field))
    return join_parts(block_parts(block, f"{field}[{i}]", media) for i, block in blocks)


def join_parts(groups: Iterable[Sequence[ContentPart]]) -> tuple[ContentPart, ...]:
    """Return the parts of several blocks, with adjacent texts merged."""
    joined: list[ContentPart] = []
    texts: list[str] = []

    def end_text() -> None:
        if text := join_blocks(texts):
            joined.append(TextPart(text))
        texts.clear()

    for group in groups:
        for part in group:
            if isinstance(part, TextPart):
                texts.append(part.text)
            else:
                end_text()
                joined.append(part)
    end_text()
    return tuple(joined)


def _image(block: BlockParam, field: str, media: MediaReader) -> ImagePart:
    match _source(block, field):
        case {"type": "base64", **source}:
            media_type = _string(source, "media_type", field)
            return media.encoded_image(_string(source, "data", field), f"{field}.data", media_type)
        case {"type": "url", **source}:
            name = f"{field}.url"
            image = media.image(_string(source, "url", field), name)
            if not isinstance(image, ImagePart):
                raise invalid(f"`{name}` is a PDF: send it in a block of type 'document'.", name)
            return image
        case {"type": "file"}:
            raise unknown_file(f"{field}.file_id")
    raise invalid(f"`{field}.type` must be 'base64' or 'url'.", f"{field}.type")


def _document(block: BlockParam, field: str, media: MediaReader) -> Sequence[ContentPart]:
    refuse_citations(block, field)
    place = f"{field}.source"
    match _source(block, place):
        case {"type": "base64", **source}:
            data, media_type = _string(source, "data", place), _string(source, "media_type", place)
            return _with_context(block, media.document(data, f"{place}.data", block.title, media_type))
        case {"type": "url", **source}:
            url = _string(source, "url", place)
            return _with_context(block, media.document_at(url, f"{place}.url", block.title))
        case {"type": "file"}:
            raise unknown_file(f"{place}.file_id")
        case {"type": "content", "content": list() as content}:
            parts = content_parts(source_content(content, place), f"{place}.content", media)
            if not all(isinstance(part, TextPart) for part in parts):
                begin = TextPart(f"<document>\n<title>{block.title}</title>" if block.title else "<document>")
                return (begin, *_with_context(block, *parts), TextPart("</document>"))
    return (TextPart(block_text(block, field)),)


def _with_context(block: BlockParam, *parts: ContentPart) -> Sequence[ContentPart]:
    return (TextPart(f"<context>{block.context}</context>"), *parts) if block.context else parts


def _source(block: BlockParam, field: str) -> dict[str, Any]:
    if not isinstance(block.source, dict):
        raise missing(field)
    return block.source


def _string(source: dict[str, Any], name: str, field: str) -> str:
    value = source.get(name)
    if value is None:
        raise missing(f"{field}.{name}")
    if not isinstance(value, str):
        raise invalid(f"`{field}.{name}` must be a string.", f"{field}.{name}", "invalid_value")
    return value
