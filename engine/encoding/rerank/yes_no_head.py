"""The beginning of a decoder's pairs, all that stands before a document, computed once for all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx
import numpy as np

from greenroom.engine.encoding.pass_cost import PassCost
from greenroom.engine.encoding.rows import Row, Tokens, Values, pad

_COPIES = 2
"""Of a layer's keys and values at the same time, while rows see the head."""


class HeadCosts:
    """What heads of a decoder take, measured on its first token.

    Args:
        caches: One for each layer, that token's in them.
        cost: Of its passes.
    """

    def __init__(self, caches: Sequence[Any], cost: PassCost) -> None:
        self._step: int = caches[0].keys.shape[2]
        sizes: list[int] = [(cache.keys.nbytes + cache.values.nbytes) // self._step for cache in caches]
        self._cost = cost
        self._of_token = sum(sizes)
        self._of_layer = max(sizes)

    def head_bytes(self, tokens: int) -> int:
        """Return what a head takes, which grows in steps."""
        return -(-tokens // self._step) * self._step * self._of_token

    def pass_bytes(self, rows: int, width: int, before: int) -> int:
        """Return what a pass takes beside it, for rows with so many tokens behind `before` others."""
        seen = rows * (before + width) * self._of_layer * _COPIES
        return self._cost.batch_bytes(rows, width, before) + seen


class YesNoHead:
    """Fulfils `greenroom.engine.encoding.shared_heads.Head`.

    Args:
        decoder: Without what makes logits, called as `decoder(ids, cache)`.
        caches: Empty, one for each layer.
        answer: Makes scores of what the decoder makes of the last tokens.
    """

    def __init__(
        self,
        tokens: Tokens,
        decoder: Any,
        caches: Sequence[Any],
        costs: HeadCosts,
        answer: Callable[[mx.array], Values],
    ) -> None:
        self._tokens = tokens
        self._decoder = decoder
        self._caches = caches
        self._costs = costs
        self._answer = answer
        self._done = 0

    @property
    def left(self) -> int:
        """Tokens that are not computed yet."""
        return len(self._tokens) - self._done

    def advance(self, count: int) -> None:
        """Compute so many more."""
        ids = mx.array(self._tokens[None, self._done : self._done + count])
        self._decoder(ids, self._caches)
        mx.eval([(cache.keys, cache.values) for cache in self._caches])
        self._done += count

    def advance_bytes(self, count: int) -> int:
        """Return what that takes, the copies of a cache that grows included."""
        grown = self._costs.head_bytes(self._done + count) if self._done else 0
        return grown + self._costs.pass_bytes(1, count, self._done)

    def compute(self, rows: Sequence[Row]) -> Values:
        """Return the scores of pairs that begin so, `[rows, 1]`."""
        own = [row.tokens[self._done :] for row in rows]
        ids, _ = pad(own, 0)
        hidden = self._decoder(mx.array(ids), [_SeenHead(cache) for cache in self._caches])
        last = mx.array(np.array([len(tokens) - 1 for tokens in own], np.int32))
        return self._answer(hidden[mx.arange(len(own)), last])

    def batch_bytes(self, rows: int, width: int) -> int:
        """Return what a pass takes."""
        return self._costs.pass_bytes(rows, width, self._done)


class _SeenHead:
    """A layer's cache of a head, seen from every row of a pass; what the rows add is not kept.

    Args:
        cache: One of mlx-lm's `KVCache`.
    """

    def __init__(self, cache: Any) -> None:
        self.offset: int = cache.offset
        self._keys, self._values = cache.keys_and_values()

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Return the keys and values of rows, the head's before each."""
        return _behind(self._keys, keys), _behind(self._values, values)

    def make_mask(self, length: int, window_size: int | None = None, return_array: bool = False) -> Any:
        """Return what each token may see: all before it."""
        from mlx_lm.models.cache import create_attention_mask

        return create_attention_mask(
            length, offset=self.offset, return_array=return_array, window_size=window_size
        )


def _behind(head: mx.array, rows: mx.array) -> mx.array:
    return mx.concatenate([mx.broadcast_to(head, (rows.shape[0], *head.shape[1:])), rows], axis=2)
