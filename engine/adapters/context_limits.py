"""Checks of a prompt against the context length, and the positions at which caches are kept."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import chain

from greenroom.engine.tokenizer.tokenizer import ChatTokenizer
from greenroom.schemas.messages.requests import ChatInput
from greenroom.schemas.problems import ProblemError, context_length_exceeded, invalid

DEFAULT_RAW_MAX_TOKENS = 16  # Default length of OpenAI's raw completions, in tokens

DEFAULT_IMAGE_MAX_TOKENS = 2_048  # Default length of answers to prompts with images, in tokens

_ALWAYS_COUNTED = 1_000_000
"""Length in characters up to which a prompt's tokens are always counted; takes about 0.25 s."""


def is_too_long(characters: int, tokenizer: ChatTokenizer, context: int) -> bool:
    """Return whether a text's length alone shows that it exceeds the context."""
    return characters > _ALWAYS_COUNTED and characters // tokenizer.longest_token >= context


def check_text_length(characters: int, tokenizer: ChatTokenizer, context: int) -> None:
    """Refuse a text whose length alone shows that it exceeds the context. Raises ProblemError: 400
    `context_length_exceeded`, with a lower bound of the token count.
    """
    if is_too_long(characters, tokenizer, context):
        raise ProblemError(context_length_exceeded(characters // tokenizer.longest_token, context))


def collect_tokens(pieces: Iterable[list[int]], characters: int, context: int) -> list[int]:
    """Return the token ids of a text; stop tokenizing once they exceed the context.

    Args:
        pieces: Token ids, piece by piece.
        characters: Length of the text in characters; shorter texts are counted to their end.
        context: Context length in tokens.

    Raises:
        ProblemError: 400 `context_length_exceeded`, with the token count or a lower bound of it.
    """
    tokens: list[int] = []
    counted = 0
    for piece in pieces:
        counted += len(piece)
        if counted <= context:
            tokens += piece
        elif characters > _ALWAYS_COUNTED:
            break
    if counted > context:
        raise ProblemError(context_length_exceeded(counted, context))
    return tokens


def check_logit_bias(biases: Sequence[tuple[int, float]], tokenizer: ChatTokenizer) -> None:
    """Refuse a bias for a token that the model does not have.

    Raises:
        ProblemError: 400 that names the token.
    """
    for ident, _ in biases:
        if ident >= tokenizer.vocab_size:
            field = f"logit_bias.{ident}"
            detail = f"`{field}` is not a token of this model: ids go from 0 to {tokenizer.vocab_size - 1}."
            raise invalid(detail, field)


def remaining_context(tokens: Sequence[int], context: int) -> int:
    """Return the number of tokens that can still be generated. Raises ProblemError: 400
    `context_length_exceeded` if there are none.
    """
    if len(tokens) >= context:
        raise ProblemError(context_length_exceeded(len(tokens), context))
    return context - len(tokens)


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
