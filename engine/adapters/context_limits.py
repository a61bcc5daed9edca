"""Whether a prompt fits into the context, and how many tokens it leaves for the answer."""

from __future__ import annotations

from collections.abc import Sequence

from greenroom.engine.tokenizer.tokenizer import ChatTokenizer
from greenroom.schemas.problems import ProblemError, context_length_exceeded, invalid

DEFAULT_RAW_MAX_TOKENS = 16
"""What OpenAI's raw completions generate by default."""

_ALWAYS_TOKENIZED = 1_000_000
"""Characters up to which a prompt is always counted exactly; takes about a quarter of a second."""

_MAX_USUAL_CHARACTERS_PER_TOKEN = 16
"""Characters per token that hardly any real text reaches; a text denser than this is counted in samples."""

_SAMPLE = 65_536


def check_text_length(characters: int, tokenizer: ChatTokenizer, context: int) -> None:
    """Refuse a text whose length alone shows that it cannot fit.

    Raises:
        ProblemError: 400 `context_length_exceeded`, with a lower bound of the tokens.
    """
    least = characters // tokenizer.longest_token
    if characters > _ALWAYS_TOKENIZED and least >= context:
        raise ProblemError(context_length_exceeded(least, context))


def check_prompt_length(text: str, tokenizer: ChatTokenizer, context: int) -> None:
    """Refuse a text that does not nearly fit, at the price of tokenising no more than what does.

    Raises:
        ProblemError: 400 `context_length_exceeded`, with a lower bound of the tokens.
    """
    check_text_length(len(text), tokenizer, context)
    if len(text) <= max(_ALWAYS_TOKENIZED, context * _MAX_USUAL_CHARACTERS_PER_TOKEN):
        return
    counted = 0
    for start in range(0, len(text), _SAMPLE):
        counted += len(tokenizer.encode_rendered(text[start : start + _SAMPLE]))
        # A cut may split a token in two, hence the eighth on top.
        if counted > context + context // 8 + 16:
            raise ProblemError(context_length_exceeded(counted, context))


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
