"""Content blocks of all kinds as protocol-independent parts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from greenroom.http.answering.tools import definition_of
from greenroom.http.media.media_reader import MediaReader, unknown_file
from greenroom.schemas.messages.messages import ContentPart, ImagePart, TextPart, Tool
from greenroom.schemas.problems import ProblemError, invalid, missing
from greenroom.schemas.wire.anthropic import ANTHROPIC, BlockParam, Content, ContentSourceParam
from greenroom.schemas.wire.wire import structure


def block_parts(block: BlockParam, field: str, media: MediaReader) -> Sequence[ContentPart]:
    """Return the parts of a text, image, document or search result block. Raises ProblemError: 400 that names
    the field.
    """
    match block.type:
        case "image":
            return (_image(block, f"{field}.source", media),)
        case "document":
            return _document(block, field, media)
        case _:
            return (TextPart(block_text(block, field)),)


def content_parts(content: Content | None, field: str, media: MediaReader) -> Sequence[ContentPart]:
    """Return the parts of a block's content. Raises ProblemError (400) that names the field."""
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


def block_text(block: BlockParam, field: str) -> str:
    """Return the text of a text, document or search result block. Raises ProblemError: 400 that names content
    that is not text.
    """
    match block.type:
        case "text":
            if block.text is None:
                raise missing(f"{field}.text")
            return block.text
        case "document":
            refuse_citations(block, field)
            inside = [*_element("title", block.title), *_element("context", block.context)]
            return _text_of_document(
                "document", [*inside, *_element("content", _document_text(block, field))]
            )
        case "search_result":
            refuse_citations(block, field)
            source = block.source if isinstance(block.source, str) else None
            inside = [*_element("source", source), *_element("title", block.title)]
            text = content_text(block.content, f"{field}.content")
            return _text_of_document("search_result", [*inside, *_element("content", text)])
        case "image":
            raise _text_only(field, "an image")
        case kind:
            detail = f"`{field}` is {kind[:40]!r}, which is not allowed there, or not supported."
            raise invalid(detail, field, "unsupported_content")


def content_text(content: Content | None, field: str) -> str:
    """Return the text of content that may only be text. Raises ProblemError: 400 that names content that is
    not text.
    """
    blocks = blocks_of(content, field)
    return join_blocks(block_text(block, f"{field}[{i}]") for i, block in enumerate(blocks))


def blocks_of(content: Content | None, field: str) -> tuple[BlockParam, ...]:
    """Return the blocks of content; none if there is no content. Raises ProblemError: 400 for an object,
    which only the results of Anthropic's own tools may be.
    """
    if content is None:
        return ()
    if isinstance(content.raw, dict):
        raise invalid(f"`{field}` must be a string or an array of blocks, but is an object.", field)
    return content.blocks


def join_blocks(texts: Iterable[str]) -> str:
    """Join the texts of several blocks, with an empty line between texts that no white space separates."""
    joined: list[str] = []
    for text in texts:
        if not text:
            continue
        if joined and not (joined[-1][-1].isspace() or text[0].isspace()):
            joined.append("\n\n")
        joined.append(text)
    return "".join(joined)


def tool_definition(tool: Tool) -> str:
    return f"This tool can be called from now on:\n{definition_of(tool)}"


def server_result_text(content: Content | None) -> str:
    """Return the result of a tool that a server ran, as text alone if it is that, else as JSON without its
    encrypted fields.
    """
    if content is None:
        return ""
    texts = [block.text for block in content.blocks if block.type == "text" and block.text is not None]
    if texts and len(texts) == len(content.blocks):
        return "\n".join(texts)
    return json.dumps(_readable(content.raw), ensure_ascii=False)


def _readable(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _readable(item) for name, item in value.items() if not name.startswith("encrypted_")}
    return [_readable(item) for item in value] if isinstance(value, list) else value


def _document_text(block: BlockParam, field: str) -> str:
    source, field = block.source, f"{field}.source"
    if not isinstance(source, dict):
        raise missing(field)
    match source.get("type"):
        case "text":
            if not isinstance(source.get("data"), str):
                raise missing(f"{field}.data")
            return str(source["data"])
        case "content":
            return content_text(source_content(source.get("content"), field), f"{field}.content")
        case "base64" | "url" | "file":
            raise _text_only(field, "a PDF or another file")
        case _:
            known = "'base64', 'text', 'content' or 'url'"
            raise invalid(f"`{field}.type` must be {known}.", f"{field}.type")


def source_content(value: Any, field: str) -> Content:
    """Return the content of a document that consists of blocks. Raises ProblemError: 400 that names the
    invalid field.
    """
    try:
        return structure({"content": value}, ContentSourceParam, ANTHROPIC).content
    except ProblemError as error:
        path = f"{field}.{error.problem.param}"
        raise invalid(f"`{path}` is not valid content of a document.", path) from None


def _element(name: str, text: str | None) -> Sequence[str]:
    return (f"<{name}>{text}</{name}>",) if text else ()


def _text_of_document(name: str, inside: Sequence[str]) -> str:
    return "\n".join((f"<{name}>", *inside, f"</{name}>"))


def refuse_citations(block: BlockParam, field: str) -> None:
    """Refuse a block with citations enabled. Raises ProblemError (400) that names the field."""
    wanted = block.citations.get("enabled") if isinstance(block.citations, dict) else None
    if wanted:
        name = f"{field}.citations"
        raise invalid(f"`{name}` are not supported here.", name, "unsupported_parameter")


def _text_only(field: str, what: str) -> ProblemError:
    detail = f"`{field}` is {what}, but only user messages and tool results may hold more than text."
    return invalid(detail, field, "unsupported_content")
