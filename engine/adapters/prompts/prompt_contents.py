"""A prompt as its model reads it, for those who want to look at it."""

from __future__ import annotations

from collections.abc import Sequence

from greenroom.engine.tokenizer.control_tokens import unmark
from greenroom.engine.tokenizer.token_names import TokenNames
from greenroom.engine.tokenizer.tokenizer import ChatTokenizer
from greenroom.schemas.model_protocol import PromptContents


def contents_of(
    tokens: Sequence[int], text: str | None, tokenizer: ChatTokenizer, names: TokenNames, context: int
) -> PromptContents:
    """Return what a prompt consists of.

    Args:
        text: As it was tokenized, marks included; None if it came as tokens.
        context: Tokens of prompt and answer together.
    """
    shown = tokenizer.decode(tokens) if text is None else unmark(text)
    pieces = tuple(names.look_up(ident).bytes for ident in tokens)
    return PromptContents(tuple(tokens), pieces, shown, context)
