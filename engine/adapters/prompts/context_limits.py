"""Whether a prompt fits into the context, and how many tokens it leaves for the answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from greenroom.engine.tokenizer.tokenizer import ChatTokenizer
from greenroom.schemas.problems import ProblemError, context_length_exceeded, invalid

DEFAULT_RAW_MAX_TOKENS = 16
"""What OpenAI's raw completions generate by default."""

_ALWAYS_COUNTED = 1_000_000
"""Characters up to which a prompt is always counted exactly; takes about a quarter of a second."""


def is_too_long(characters: int, tokenizer: ChatTokenizer, context: int) -> bool:
    """Return whether the length of a text alone shows that it cannot fit."""
    return characters > _ALWAYS_COUNTED and characters // tokenizer.longest_token >= context


def check_text_length(characters: int, tokenizer: ChatTokenizer, context: int) -> None:
    """Refuse a text whose length alone shows that it cannot fit.

    Raises:
        ProblemError: 400 `context_length_exceeded`, with a lower bound of the tokens.
    """
    if is_too_long(characters, tokenizer, context):
        raise ProblemError(context_length_exceeded(characters // tokenizer.longest_token, context))


def collect_tokens(pieces: Iterable[list[int]], characters: int, context: int) -> list[int]:
    """Return the tokens of a text, and stop tokenizing it once it is known not to fit.

    Args:
        pieces: Its tokens, piece by piece.
        characters: Its length; a text that is not very long is counted to its end.

    Raises:
        ProblemError: 400 `context_length_exceeded`, with the number of tokens or a lower bound of it.
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
        ProblemError: 400 that names it.
    """
    for ident, _ in biases:
        if ident >= tokenizer.vocab_size:
            field = f"logit_bias.{ident}"
            detail = f"`{field}` is no token of this model: ids go from 0 to {tokenizer.vocab_size - 1}."
            raise invalid(detail, field)


def remaining_context(tokens: Sequence[int], context: int) -> int:
    """Return how many tokens can still be generated.

    Raises:
        ProblemError: 400 `context_length_exceeded` if there is none left.
    """
    if len(tokens) >= context:
        raise ProblemError(context_length_exceeded(len(tokens), context))
    return context - len(tokens)
