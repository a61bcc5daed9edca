"""Batches of unequal rows, for recurrent blocks that ignore padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from greenroom.engine.kv_cache.caches import KnownLengths


class RaggedRows(nn.Module):  # type: ignore[misc]
    """A recurrent block, kept from updating its state with the padding on the right of a row.

    The input is cut wherever a row ends, and the block computes each piece with the rows that reach so far,
    from the state in which the piece before left them: what it does with a prompt in chunks, and right
    however the block is made. With r different lengths that is r calls, of no padding at all.

    Args:
        block: Called with `x` `[rows, tokens, …]` and, among its other arguments, a cache of arrays
            `[rows, …]`. Further arguments, and what it returns, may be arrays shaped as `x`; `offset` is a
            position.
    """

    def __init__(self, block: Any) -> None:
        super().__init__()
        self.block = block

    def __call__(self, x: mx.array, *args: Any, **keywords: Any) -> Any:
        cache = next((value for value in (*args, *keywords.values()) if hasattr(value, "lengths")), None)
        if cache is None or cache.lengths is None:
            return self.block(x, *args, **keywords)
        left = _tokens_left(cache)
        lengths = [min(max(tokens, 0), x.shape[1]) for tokens in left]
        computed = _compute_pieces(self.block, x, args, keywords, cache, lengths)
        cache.advance(x.shape[1])
        cache.known_lengths = KnownLengths(cache.lengths, [tokens - x.shape[1] for tokens in left])
        return computed


def _tokens_left(cache: Any) -> list[int]:
    """Return the tokens of each row, as the host knows them: every layer would wait for the device."""
    known: KnownLengths | None = getattr(cache, "known_lengths", None)
    if known is not None and known.lengths is cache.lengths:
        return known.tokens
    tokens: list[int] = cache.lengths.tolist()
    return tokens


def _compute_pieces(
    block: Any,
    x: mx.array,
    args: Sequence[Any],
    keywords: dict[str, Any],
    cache: Any,
    lengths: Sequence[int],
) -> Any:
    """Compute the rows, longest first, so that the rows that reach a position are always the first ones."""
    from mlx.utils import tree_map
    from mlx_lm.models.cache import ArraysCache

    order = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    longest_first, back = mx.array(order), mx.argsort(mx.array(order))
    shape = x.shape[:2]

    def piece(value: Any, start: int, end: int, rows: int) -> Any:
        if value is cache:
            return states
        if isinstance(value, mx.array) and value.shape[:2] == shape:
            return value[longest_first[:rows], start:end]
        return value

    states = ArraysCache(len(cache.cache))
    states.cache = [None if state is None else state[longest_first] for state in cache.cache]
    pieces: list[Any] = []
    left: list[list[mx.array | None]] = []
    rows, start = len(order), 0
    for end in sorted({*lengths}):
        if end > start:
            inputs = {name: piece(value, start, end, rows) for name, value in keywords.items()}
            if "offset" in inputs:
                inputs["offset"] = _position(inputs["offset"], longest_first[:rows], start)
            positional = (piece(value, start, end, rows) for value in args)
            computed = block(piece(x, start, end, rows), *positional, **inputs)
            pieces.append(tree_map(lambda part: _pad_rows(part, shape[0]), computed))
            start = end
        going_on = sum(length > end for length in lengths)
        left.append([None if state is None else state[going_on:] for state in states.cache])
        states.cache = [None if state is None else state[:going_on] for state in states.cache]
        rows = going_on
    cache.cache = [_join_rows(parts, back) for parts in zip(*reversed(left), strict=True)]
    return tree_map(lambda *parts: _join_tokens(parts, shape[1])[back], pieces[0], *pieces[1:])


def _position(offset: Any, rows: mx.array, start: int) -> Any:
    return (offset[rows] if isinstance(offset, mx.array) and offset.ndim else offset) + start


def _pad_rows(computed: mx.array, rows: int) -> mx.array:
    missing = rows - computed.shape[0]
    return mx.pad(computed, [(0, missing), *[(0, 0)] * (computed.ndim - 1)]) if missing else computed


def _join_tokens(parts: Sequence[mx.array], tokens: int) -> mx.array:
    joined = mx.concatenate(list(parts), axis=1)
    missing = tokens - joined.shape[1]
    return mx.pad(joined, [(0, 0), (0, missing), *[(0, 0)] * (joined.ndim - 2)]) if missing else joined


def _join_rows(parts: Sequence[mx.array | None], back: mx.array) -> mx.array | None:
    """Return the states of all rows in their own order; rows without one begin with zeros, as in a batch."""
    present = [part for part in parts if part is not None]
    if not present:
        return None
    rows = back.size - sum(part.shape[0] for part in present)
    if rows:  # those of no tokens, which are the last
        present.append(mx.zeros((rows, *present[0].shape[1:]), present[0].dtype))
    return mx.concatenate(present)[back]
