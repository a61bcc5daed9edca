"""Outlines of prompts: digests of their parts, by which the first difference between two prompts is found."""

from __future__ import annotations

import marshal
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any

from greenroom.engine.adapters.conversation.rendered_images import RenderedImage
from greenroom.schemas.messages.messages import ContentPart, ImagePart, Message, TextPart, Tool
from greenroom.schemas.messages.prepared_input import OutlinedPart, PromptOutline

_DIGEST_BYTES = 12


def outline_prompt(
    sent: Sequence[Message], rendered: Sequence[Message], tools: Iterable[Tool], dropped: int
) -> PromptOutline:
    """Return the outline of a conversation.

    Ids of calls are left out, since few templates show them and some clients change them.

    Args:
        sent: Messages of the request.
        rendered: Messages that the template renders: those of the request, or the latest of them, perhaps
            behind a system message of the operator.
        dropped: Number of oldest messages that were left out.
    """
    written = len(rendered) + dropped - len(sent)
    messages = []
    for at, message in enumerate(rendered):
        index: int | None = at - written
        if at < written:
            index = None
        elif dropped and message is not sent[at - written]:
            index = at - written + dropped
        digest, size = _digest_message(message)
        messages.append(OutlinedPart(digest, size, index, message.role))
    described = [_digest_tool(tool, index) for index, tool in enumerate(tools)]
    return PromptOutline(tuple(messages), tuple(described), dropped)


def _digest_message(message: Message) -> tuple[bytes, int]:
    hasher = blake2b(digest_size=_DIGEST_BYTES)
    size = 0
    calls = (text for call in message.tool_calls for text in (call.name, call.arguments))
    texts = (message.role, message.name or "", message.reasoning or "", *calls)
    contents = (part.text if isinstance(part, TextPart) else _digest_media(part) for part in message.content)
    for piece in (*texts, *contents):
        data = piece if isinstance(piece, bytes) else str(piece).encode("utf-8", "surrogatepass")
        size += len(data)
        hasher.update(b"%d:" % len(data))
        hasher.update(data)
    return hasher.digest(), size


def _digest_media(part: ContentPart) -> bytes:
    if isinstance(part, RenderedImage):
        digest: bytes = part.processed.digest
        return digest
    return part.digest if isinstance(part, ImagePart) else type(part).__name__.encode()


def _digest_tool(tool: Tool, index: int) -> OutlinedPart:
    data = _packed((tool.name, tool.description, tool.parameters, tool.described))
    return OutlinedPart(blake2b(data, digest_size=_DIGEST_BYTES).digest(), len(data), index)


def _packed(value: Any) -> bytes:
    try:
        return marshal.dumps(value, 2)  # later versions also depend on the objects' identities
    except ValueError:  # a program's own mapping
        return repr(value).encode("utf-8", "surrogatepass")
