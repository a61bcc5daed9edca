"""Contents of a prompt, for inspection by clients."""

from __future__ import annotations

from collections.abc import Sequence

from greenroom.engine.tokenizer.control_tokens import unmark
from greenroom.engine.tokenizer.tokenizer import ChatTokenizer
from greenroom.schemas.protocols.model_protocol import PromptContents


def contents_of(
    tokens: Sequence[int], text: str | None, tokenizer: ChatTokenizer, context: int
) -> PromptContents:
    """Return the contents of a prompt.

    Args:
        tokens: Token ids of the prompt.
        text: Tokenized text with control tokens marked; None if the prompt came as token ids.
        tokenizer: Tokenizer of the model.
        context: Limit on prompt and answer together, in tokens.
    """
    shown = tokenizer.decode(tokens) if text is None else unmark(text)
    pieces = tuple(tokenizer.token_names.look_up(ident).bytes for ident in tokens)
    return PromptContents(tuple(tokens), pieces, shown, context)
