"""System prompts, without the billing header that one client puts into every request."""

from __future__ import annotations

import re

from greenroom.http.anthropic.conversation.content_text import block_text, blocks_of, join_blocks
from greenroom.schemas.anthropic.messages import Content
from greenroom.schemas.messages.messages import Message, TextPart

_BILLING_HEADER = re.compile(r"\A\s*x-anthropic-billing-header:[^\n]*\n?", re.IGNORECASE)


def parse_system(system: Content | None) -> tuple[Message, ...]:
    """Return the system message at the start of a request, if it has one.

    Raises:
        ProblemError: 400 that names a block that is not text.
    """
    text = join_blocks(
        without_billing_header(block_text(block, f"system[{i}]"))
        for i, block in enumerate(blocks_of(system, "system"))
    )
    return (Message("system", (TextPart(text),)),) if text else ()


def without_billing_header(text: str) -> str:
    """Return a system prompt without its billing header.

    The header differs between sessions, and would keep their prompts from sharing a cached prefix.
    """
    return _BILLING_HEADER.sub("", text, count=1)
