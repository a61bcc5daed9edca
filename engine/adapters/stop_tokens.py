"""Detection of the tokens that end a model's turn."""

from __future__ import annotations

from greenroom.engine.tokenizer.tokenizer import ChatTokenizer

_END_OF_TURN_TOKENS = (
    "<|im_end|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<end_of_turn>",
    "<|flush|>",
    "<|calls|>",
)
"""Tokens that end a turn in any vocabulary that has them, declared as such or not."""


def find_stop_token_ids(tokenizer: ChatTokenizer, of_family: tuple[str, ...]) -> frozenset[int]:
    """Return the ids of the tokens that end a turn: declared, well-known and the family's.

    Args:
        tokenizer: Tokenizer of the model.
        of_family: End-of-turn tokens of the model's family.
    """
    added = tokenizer.added_tokens
    ends = {added[token] for token in (*_END_OF_TURN_TOKENS, *of_family) if token in added}
    return tokenizer.eos_token_ids | ends
