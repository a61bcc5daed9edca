"""Generative rerankers: the score is the probability of `yes` against `no` as the next token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import numpy as np

from greenroom.engine.encoding.pass_cost import PassCost
from greenroom.engine.encoding.rerank.prefix_kv import PrefixCosts, PrefixKV
from greenroom.engine.encoding.rerank.scores import score_event
from greenroom.engine.encoding.rows import PreparedRows, Row, Tokens, Values, pad
from greenroom.schemas.events.result_events import Score


class GenerativeReranker:
    """A loaded decoder, confined to its thread.

    Rows are padded on the right; causal attention never reaches the padding, so each row is computed as if
    alone.

    Args:
        model: A model of mlx-lm whose layers all use a plain `KVCache`.
        answers: Ids of the tokens `yes` and `no`.
        cost: Memory model of a pass.
    """

    def __init__(self, model: Any, answers: tuple[int, int], cost: PassCost) -> None:
        self._model = model
        self._answers = answers
        self._cost = cost
        caches = self._new_caches()
        model.model(mx.zeros((1, 1), mx.int32), caches)
        mx.eval([(cache.keys, cache.values) for cache in caches])
        self._prefix_costs = PrefixCosts(caches, cost)

    def compute(self, rows: Sequence[Row]) -> Values:
        """Return the scores of pairs, `[rows, 1]`."""
        ids, _ = pad([row.tokens for row in rows], 0)
        last = mx.array(np.array([len(row.tokens) - 1 for row in rows], np.int32))
        return self._answer(self._model.model(mx.array(ids))[mx.arange(len(rows)), last])

    def event(self, prepared: PreparedRows, index: int, values: Values) -> Score:
        return score_event(index, values)

    def batch_bytes(self, rows: int, width: int) -> int:
        return self._cost.batch_bytes(rows, width)

    def prefix_bytes(self, tokens: int) -> int:
        """Return the bytes of a shared prefix's KV cache."""
        return self._prefix_costs.prefix_bytes(tokens)

    def open_prefix(self, tokens: Tokens) -> PrefixKV:
        """Return a shared prefix of pairs, with nothing computed yet."""
        return PrefixKV(tokens, self._model.model, self._new_caches(), self._prefix_costs, self._answer)

    def _new_caches(self) -> list[Any]:
        from mlx_lm.models.cache import KVCache

        return [KVCache() for _ in self._model.layers]

    def _answer(self, hidden: mx.array) -> Values:
        """Return the scores for the decoder's hidden states at the last tokens."""
        head = getattr(self._model, "lm_head", None)
        logits = self._model.model.embed_tokens.as_linear(hidden) if head is None else head(hidden)
        yes, no = self._answers
        scores = mx.sigmoid((logits[:, yes] - logits[:, no]).astype(mx.float32))[:, None]
        mx.eval(scores)
        return np.array(scores)
