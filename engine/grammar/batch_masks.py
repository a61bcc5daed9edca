"""Masks of a whole batch: computed on the host while the forward pass runs, applied with plain MLX.

llguidance's own MLX kernel needs Metal; this runs everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from greenroom.engine.grammar.matcher import Matcher
from greenroom.engine.grammar.token_mask import TokenMask
from greenroom.schemas.problems import Problem, ProblemError


@cache
def _executor() -> Any:
    from llguidance import LLExecutor

    return LLExecutor()


def compute_masks(matchers: Mapping[int, Matcher]) -> dict[int, TokenMask | Problem]:
    """The masks of the rows that need one. Releases the GIL while it computes.

    Args:
        matchers: Row matchers by index of their row in the batch.

    Returns:
        By row: its mask, or why its grammar cannot go on. Rows that may say anything are missing.
    """
    import numpy as np

    masks: dict[int, TokenMask | Problem] = {}
    asked: list[tuple[int, Matcher]] = []
    for row, matcher in matchers.items():
        if matcher.grammar_state is not None:
            asked.append((row, matcher))
        elif (mask := matcher.fixed_mask()) is not None:
            masks[row] = mask
    if not asked:
        return masks
    words = np.zeros((len(asked), asked[0][1].mask_words), np.uint32)
    if len(asked) == 1:
        asked[0][1].grammar_state.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
    else:
        jobs = [(matcher.grammar_state, index) for index, (_, matcher) in enumerate(asked)]
        _executor().unsafe_compute_mask_ptr(jobs, words.ctypes.data, words.shape[1] * 4, len(asked))
    for (row, matcher), bits in zip(asked, words, strict=True):
        try:
            matcher.check()
            masks[row] = TokenMask(bits)
        except ProblemError as error:
            masks[row] = error.problem
    return masks


def apply_masks(logits: Any, masks: Mapping[int, TokenMask]) -> Any:
    """Logits `[rows, vocabulary]` with -inf wherever a row's mask forbids the token. Lazy.

    Rows without a mask keep what they have; where those are most, nothing is done to them.
    """
    import mlx.core as mx

    rows, width = logits.shape
    if 2 * len(masks) > rows:
        free = mx.ones((width,), mx.bool_)
        allowed = [masks[row].dense(width) if row in masks else free for row in range(rows)]
        return mx.where(mx.stack(allowed), logits, -mx.inf)
    for row, mask in masks.items():
        logits[row] = mx.where(mask.dense(width), logits[row], -mx.inf)
    return logits
