"""Masks of a whole batch: computed on the host while the forward pass runs, applied with plain MLX.

llguidance's own MLX kernel needs Metal; this runs everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from greenroom.engine.grammar.matcher import Matcher
from greenroom.engine.grammar.matcher_state import check_grammar
from greenroom.engine.grammar.token_mask import TokenMask
from greenroom.schemas.problems import Problem, ProblemError


@cache
def _executor() -> Any:
    from llguidance import LLExecutor

    return LLExecutor()


def compute_masks(matchers: Mapping[int, Matcher]) -> dict[int, TokenMask | Problem]:
    """Compute the masks of the rows that need one. Releases the GIL while it computes.

    Args:
        matchers: Matchers by index of their row in the batch.

    Returns:
        By row: its mask, or why its grammar cannot go on. Rows that may say anything are missing.
    """
    import numpy as np

    masks: dict[int, TokenMask | Problem] = {}
    computed: list[tuple[int, Matcher]] = []
    for row, matcher in matchers.items():
        if matcher.grammar is not None:
            computed.append((row, matcher))
        elif (mask := matcher.fixed_mask()) is not None:
            masks[row] = mask
    if not computed:
        return masks
    words = np.zeros((len(computed), computed[0][1].mask_words), np.uint32)
    if len(computed) == 1:
        computed[0][1].grammar.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
    else:
        jobs = [(matcher.grammar, index) for index, (_, matcher) in enumerate(computed)]
        _executor().unsafe_compute_mask_ptr(jobs, words.ctypes.data, words.shape[1] * 4, len(computed))
    for (row, matcher), bits in zip(computed, words, strict=True):
        try:
            check_grammar(matcher.grammar)
            masks[row] = TokenMask(bits)
        except ProblemError as error:
            masks[row] = error.problem
    return masks


def apply_masks(logits: Any, masks: Mapping[int, TokenMask]) -> Any:
    """Return logits `[rows, vocabulary]` with -inf wherever a row's mask forbids the token. Lazy.

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
