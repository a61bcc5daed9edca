"""Images and PDFs that a user attaches at the terminal."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

from greenroom.http.media.media_reader import MAX_FILE_BYTES
from greenroom.schemas.file_formats import image_format, is_pdf
from greenroom.schemas.messages.messages import ContentPart, DocumentPart, ImagePart, Message, TextPart


class CannotShowError(Exception):
    """A file that cannot be attached; the message is one line with the reason."""


def read_shown_file(path: str) -> ImagePart | DocumentPart:
    """Return a file as a content part.

    Raises:
        CannotShowError: It cannot be read, is too large, or is neither an image nor a PDF.
    """
    try:
        file = Path(path).expanduser()
        if file.exists() and not (file.is_file() or file.is_dir()):
            raise CannotShowError(f"{path} is not a regular file")
        with file.open("rb") as opened:
            data = opened.read(MAX_FILE_BYTES + 1)
    except (OSError, RuntimeError, ValueError) as problem:  # unknown home folder; null byte
        reason = problem.strerror if isinstance(problem, OSError) else None
        raise CannotShowError(f"{path}: {reason or problem}") from problem
    if len(data) > MAX_FILE_BYTES:
        raise CannotShowError(f"{path} has more than the {MAX_FILE_BYTES:,} bytes that a file may have")
    if is_pdf(data):
        return DocumentPart(data, name=os.fsencode(file.name).decode(errors="replace"), param=path)
    if image_format(data) is None:
        raise CannotShowError(f"{path} is neither a JPEG, PNG, GIF, WebP or HEIC image nor a PDF")
    return ImagePart(data, param=path)


def chat_content(message: Message) -> str | list[dict[str, Any]]:
    """Return a message's content in OpenAI's format."""
    if not message.media:
        return message.text
    return [_chat_part(part) for part in message.content]


def _chat_part(part: ContentPart) -> dict[str, Any]:
    match part:
        case ImagePart(data):
            url = f"data:image/{image_format(data)};base64,{base64.b64encode(data).decode()}"
            return {"type": "image_url", "image_url": {"url": url}}
        case DocumentPart(data, name=name):
            url = f"data:application/pdf;base64,{base64.b64encode(data).decode()}"
            return {"type": "file", "file": {"file_data": url, "filename": name}}
        case TextPart(text):
            return {"type": "text", "text": text}
    raise TypeError(part)
