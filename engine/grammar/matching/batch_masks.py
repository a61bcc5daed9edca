"""Token masks of a batch, computed on the host during the forward pass and applied with plain MLX.

llguidance's own MLX kernel needs Metal; this code runs on any device.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

from greenroom.engine.grammar.matching.matcher import Matcher
from greenroom.engine.grammar.matching.matcher_state import check_grammar
from greenroom.engine.grammar.matching.token_mask import TokenMask
from greenroom.engine.grammar.vocabulary.c_interface import GrammarMatcher
from greenroom.schemas.problems import Problem, ProblemError

_THREADS = max(1, min(32, (os.cpu_count() or 1) * 4 // 5))


@cache
def _executor() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="greenroom-masks")


def compute_masks(matchers: Mapping[int, Matcher]) -> dict[int, TokenMask | Problem]:
    """Compute the masks of a batch's constrained rows. Releases the GIL while it computes.

    Args:
        matchers: Matchers by row index in the batch.

    Returns:
        Mask of each row, or the problem that stops its grammar. Unconstrained rows are missing.
    """
    masks: dict[int, TokenMask | Problem] = {}
    unknown: dict[int, Matcher] = {}
    for row, matcher in matchers.items():
        mask = matcher.fixed_mask() if matcher.grammar is None else matcher.known_mask
        if mask is not None:
            masks[row] = mask
        elif matcher.grammar is not None:
            unknown[row] = matcher
    together = {row: matcher for row, matcher in unknown.items() if not matcher.mask_latency.is_suspect}
    for row, matcher in unknown.items():
        if len(together) == 1 or row not in together:
            masks[row] = _compute_timed(matcher)
    if len(together) > 1:
        masks |= _compute_together(together)
    return masks


def _compute_timed(matcher: Matcher) -> TokenMask | Problem:
    began = time.thread_time()
    mask = _compute([matcher])[0]
    matcher.mask_latency.record((time.thread_time() - began) * 1e3)
    return mask


def _compute_together(matchers: Mapping[int, Matcher]) -> dict[int, TokenMask | Problem]:
    """Compute masks in parallel; if that takes long, each is timed alone in the next step."""
    began = time.perf_counter()
    masks = dict(zip(matchers, _compute([*matchers.values()]), strict=True))
    milliseconds = (time.perf_counter() - began) * 1e3
    for matcher in matchers.values():
        matcher.mask_latency.suspect(milliseconds)
    return masks


def _compute(matchers: Sequence[Matcher]) -> list[TokenMask | Problem]:
    import numpy as np

    words = np.zeros((len(matchers), matchers[0].mask_words), np.uint32)
    if len(matchers) == 1 or _THREADS == 1:
        for matcher, bits in zip(matchers, words, strict=True):
            matcher.grammar.compute_mask(bits)
    else:
        grammars = [matcher.grammar for matcher in matchers]
        deque(_executor().map(GrammarMatcher.compute_mask, grammars, words), 0)
    masks: list[TokenMask | Problem] = []
    for matcher, bits in zip(matchers, words, strict=True):
        try:
            check_grammar(matcher.grammar)
            masks.append(TokenMask(bits))
        except ProblemError as error:
            masks.append(error.problem)
        matcher.keep_mask(masks[-1])
    return masks


def apply_masks(logits: Any, masks: Mapping[int, TokenMask]) -> Any:
    """Return logits `[rows, vocabulary]` with -inf for the tokens that a row's mask forbids. Lazy.

    Rows without a mask keep their logits and are left untouched if they are the majority.
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
