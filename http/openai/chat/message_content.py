"""Content of chat messages as protocol-independent parts: text, images, documents and audio."""

from __future__ import annotations

from typing import Any

from greenroom.http.media.media_reader import MediaReader, unknown_file
from greenroom.schemas.messages.messages import ContentPart, Role, TextPart
from greenroom.schemas.openai.chat import TEXT_PARTS, Content, FileParam, MessageParam, PartParam
from greenroom.schemas.problems import Problem, ProblemError, invalid, missing

SHOWN_BY: tuple[Role, ...] = ("user", "tool")
"""Roles whose messages may contain more than text."""


def content_parts(
    content: Content | None, role: Role, media: MediaReader, field: str
) -> tuple[ContentPart, ...]:
    """Return the parts of a message's content.

    Args:
        media: Media reader of the request.
        field: Path of the content in the request.

    Raises:
        ProblemError: 400 that names the field; 501 for a video.
    """
    parts = enumerate(content.parts if content else ())
    said = ((i, part) for i, part in parts if not (part.type == "thinking" and role == "assistant"))
    return tuple(_part(part, role, media, f"{field}[{i}]") for i, part in said)


def reasoning_of(message: MessageParam) -> str | None:
    """Return an assistant's reasoning, wherever other servers and their clients put it; None without any.

    Those are vLLM's and OpenRouter's fields, and parts of type `thinking`, such as Mistral's.
    """
    for text in (message.reasoning_content, message.reasoning):
        if text and isinstance(text, str):
            return text
    details = message.reasoning_details if isinstance(message.reasoning_details, list) else ()
    parts = message.content.parts if message.content else ()
    thoughts = [*details, *(part.thinking for part in parts if part.type == "thinking")]
    return "".join(map(_thought, thoughts)) or None


def _thought(thought: Any) -> str:
    if isinstance(thought, list):
        return "".join(map(_thought, thought))
    text = thought.get("text") if isinstance(thought, dict) else thought
    return text if isinstance(text, str) else ""


def _part(part: PartParam, role: Role, media: MediaReader, field: str) -> ContentPart:
    if part.type in TEXT_PARTS:
        text = part.refusal if part.type == "refusal" else part.text
        if text is None:
            raise missing(f"{field}.{part.type}")
        return TextPart(text)
    if part.type == "thinking":
        detail = f"`{field}` is 'thinking', but only assistant messages may hold reasoning."
        raise invalid(detail, field, "unsupported_content")
    if role not in SHOWN_BY:
        detail = f"`{field}` is {part.type!r}, but only user and tool messages may hold more than text."
        raise invalid(detail, field, "unsupported_content")
    match part:
        case PartParam(type="image_url", image_url=image) if image is not None:
            return media.image(image.url, f"{field}.image_url.url", image.detail)
        case PartParam(type="input_audio", input_audio=audio) if audio is not None:
            return media.recording(audio.data, audio.format, f"{field}.input_audio")
        case PartParam(type="file", file=file) if file is not None:
            return _file(file, media, f"{field}.file")
        case PartParam(type="video_url"):
            detail = f"`{field}` is a video; videos are not supported. Send single frames as images."
            raise ProblemError(Problem(501, "not_implemented", detail, field))
    raise missing(f"{field}.{part.type}")


def _file(file: FileParam, media: MediaReader, field: str) -> ContentPart:
    if file.file_id is not None:
        raise unknown_file(f"{field}.file_id")
    if file.file_data is None:
        raise missing(f"{field}.file_data")
    return media.file(file.file_data, f"{field}.file_data", file.filename)
