"""Prefix cache checkpoints in a prompt: ends of parts that later prompts are likely to share."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import chain

from greenroom.engine.tokenizer.tokenizer import ChatTokenizer
from greenroom.schemas.messages.requests import ChatInput


def turn_checkpoints(tokens: Sequence[int], stop_token_ids: Collection[int]) -> tuple[int, ...]:
    """Return the positions behind the tokens that end a turn."""
    return tuple(at for at, token in enumerate(tokens, 1) if token in stop_token_ids)


def system_checkpoint(
    tokenizer: ChatTokenizer,
    stop_token_ids: Collection[int],
    chat: ChatInput,
    text: str,
    tokens: Sequence[int],
) -> int | None:
    """Return the end of the system message if the template puts it into the first user turn.

    Returns None if it has a turn of its own, which `turn_checkpoints` covers.

    Args:
        text: Rendered prompt.
        tokens: Token ids of the rendered prompt.
    """
    system = next((message for message in chat.messages if message.role == "system"), None)
    user = next((message for message in chat.messages if message.role == "user"), None)
    if system is None or user is None:
        return None
    content = system.text.strip()
    at = text.find(content)
    if not content or at < 0:
        return None
    end = at + len(content)
    between = text[end : text.find(user.text.strip(), end)]
    ends = (word for word, token in tokenizer.added_tokens.items() if token in stop_token_ids)
    if any(word in between for word in ends):
        return None
    before = list(chain.from_iterable(tokenizer.encode_rendered(text[:end])))
    shared = next((i for i, (a, b) in enumerate(zip(before, tokens, strict=False)) if a != b), len(before))
    # The last token of a text may change when more text follows.
    return max(0, min(shared, len(before) - 1, len(tokens) - 1)) or None
