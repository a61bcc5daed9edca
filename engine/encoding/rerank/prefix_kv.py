"""The shared prefix of a decoder's pairs, all tokens before a document, computed once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx
import numpy as np

from greenroom.engine.encoding.pass_cost import PassCost
from greenroom.engine.encoding.rows import Row, Tokens, Values, pad

_COPIES = 2
"""Number of copies of a layer's keys and values that exist at once while rows attend to the prefix."""


class PrefixCosts:
    """Memory model of shared prefixes, measured on a decoder's first token.

    Args:
        caches: One cache per layer, each with that token.
        cost: Memory model of a pass.
    """

    def __init__(self, caches: Sequence[Any], cost: PassCost) -> None:
        self._step: int = caches[0].keys.shape[2]
        sizes: list[int] = [(cache.keys.nbytes + cache.values.nbytes) // self._step for cache in caches]
        self._cost = cost
        self._of_token = sum(sizes)
        self._of_layer = max(sizes)

    def prefix_bytes(self, tokens: int) -> int:
        """Return the bytes of a prefix's KV cache, which grows in steps."""
        return -(-tokens // self._step) * self._step * self._of_token

    def pass_bytes(self, rows: int, width: int, before: int) -> int:
        """Return the memory of a pass in bytes for rows of `width` tokens after `before` cached ones."""
        seen = rows * (before + width) * self._of_layer * _COPIES
        return self._cost.batch_bytes(rows, width, before) + seen


class PrefixKV:
    """The computed prefix that pairs of query and document share; implements
    `greenroom.engine.encoding.shared_prefixes.SharedPrefix`.

    Args:
        tokens: Token ids of the prefix.
        decoder: The decoder without its LM head, called as `decoder(ids, cache)`.
        caches: One empty cache per layer.
        costs: Estimate of the memory that prefixes take.
        answer: Function from hidden states at the last tokens to scores.
    """

    def __init__(
        self,
        tokens: Tokens,
        decoder: Any,
        caches: Sequence[Any],
        costs: PrefixCosts,
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
        return len(self._tokens) - self._done

    def advance(self, count: int) -> None:
        ids = mx.array(self._tokens[None, self._done : self._done + count])
        self._decoder(ids, self._caches)
        mx.eval([(cache.keys, cache.values) for cache in self._caches])
        self._done += count

    def advance_bytes(self, count: int) -> int:
        """Return the memory that `advance` takes in bytes, including the copies while a cache grows."""
        grown = self._costs.prefix_bytes(self._done + count) if self._done else 0
        return grown + self._costs.pass_bytes(1, count, self._done)

    def compute(self, rows: Sequence[Row]) -> Values:
        """Return the scores of pairs with this prefix, `[rows, 1]`."""
        own = [row.tokens[self._done :] for row in rows]
        ids, _ = pad(own, 0)
        hidden = self._decoder(mx.array(ids), [_CachedPrefix(cache) for cache in self._caches])
        last = mx.array(np.array([len(tokens) - 1 for tokens in own], np.int32))
        return self._answer(hidden[mx.arange(len(own)), last])

    def batch_bytes(self, rows: int, width: int) -> int:
        """Return the memory of a pass in bytes."""
        return self._costs.pass_bytes(rows, width, self._done)


class _CachedPrefix:
    """One layer's cached prefix, shared by all rows of a pass; the rows' own keys and values are not kept.

    Args:
        cache: A `KVCache` of mlx-lm.
    """

    def __init__(self, cache: Any) -> None:
        self.offset: int = cache.offset
        self._keys, self._values = cache.keys_and_values()

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Return the rows' keys and values, each preceded by the prefix's."""
        return _behind(self._keys, keys), _behind(self._values, values)

    def make_mask(self, length: int, window_size: int | None = None, return_array: bool = False) -> Any:
        """Return the causal attention mask."""
        from mlx_lm.models.cache import create_attention_mask

        return create_attention_mask(
            length, offset=self.offset, return_array=return_array, window_size=window_size
        )


def _behind(prefix: mx.array, rows: mx.array) -> mx.array:
    return mx.concatenate([mx.broadcast_to(prefix, (rows.shape[0], *prefix.shape[1:])), rows], axis=2)
