"""Conversion of items' content to protocol-independent parts: text, images, documents and recordings."""

from __future__ import annotations

from greenroom.http.media.media_reader import MediaReader, unknown_file
from greenroom.schemas.messages.messages import ContentPart, TextPart
from greenroom.schemas.problems import Problem, ProblemError, invalid, missing
from greenroom.schemas.responses.parts import Content, PartParam

TEXT_PARTS = ("input_text", "output_text", "text", "summary_text", "reasoning_text")


def content_texts(content: Content, field: str) -> list[str]:
    """Return the texts of text-only content.

    Raises:
        ProblemError: 400 that names a part of another type.
    """
    return [_text(part, f"{field}[{index}]") for index, part in enumerate(content.parts)]


def content_parts(content: Content, media: MediaReader, field: str) -> tuple[ContentPart, ...]:
    """Return content as protocol-independent parts.

    Args:
        media: Media reader of the whole request.

    Raises:
        ProblemError: 400 that names the field; 501 for a video.
    """
    return tuple(content_part(part, media, f"{field}[{index}]") for index, part in enumerate(content.parts))


def content_part(part: PartParam, media: MediaReader, field: str) -> ContentPart:
    """Return one protocol-independent part. Raises as `content_parts` does."""
    match part.type:
        case "input_image" | "computer_screenshot":
            return _image(part, media, field)
        case "input_file":
            return _file(part, media, field)
        case "input_audio":
            if part.input_audio is None:
                raise missing(f"{field}.input_audio")
            return media.recording(part.input_audio.data, part.input_audio.format, f"{field}.input_audio")
        case "input_video":
            detail = f"`{field}` is a video; videos are not supported. Send single frames as images."
            raise ProblemError(Problem(501, "not_implemented", detail, field))
    return TextPart(_text(part, field))


def _image(part: PartParam, media: MediaReader, field: str) -> ContentPart:
    if part.image_url is not None:
        return media.image(part.image_url, f"{field}.image_url", part.detail)
    if part.file_id is not None:
        raise unknown_file(f"{field}.file_id")
    raise missing(f"{field}.image_url")


def _file(part: PartParam, media: MediaReader, field: str) -> ContentPart:
    if part.file_data is not None:
        return media.file(part.file_data, f"{field}.file_data", part.filename)
    if part.file_url is not None:
        return media.document_at(part.file_url, f"{field}.file_url", part.filename)
    if part.file_id is not None:
        raise unknown_file(f"{field}.file_id")
    raise missing(f"{field}.file_data")


def _text(part: PartParam, field: str) -> str:
    if part.type == "refusal":
        if part.refusal is None:
            raise missing(f"{field}.refusal")
        return part.refusal
    if part.type not in TEXT_PARTS:
        kind = part.type.removeprefix("input_").replace("_", " ")[:40]
        detail = f"`{field}` is {kind!r}, which cannot stand there, or is not supported."
        raise invalid(detail, field, "unsupported_content")
    if part.text is None:
        raise missing(f"{field}.text")
    return part.text
