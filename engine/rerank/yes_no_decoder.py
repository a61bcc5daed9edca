"""Decoders that rank: how likely the next token is `yes` rather than `no`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx
import numpy as np

from greenroom.engine.encoders.rows import PreparedRows, Row, Values, pad
from greenroom.engine.rerank.scores import score_event
from greenroom.schemas.result_events import Score


class YesNoDecoder:
    """A loaded decoder, on its one thread.

    Rows are padded on the right, where no token of a causal model looks: each is computed as if alone.

    Args:
        model: One of mlx-lm's.
        answers: Tokens of `yes` and `no`.
    """

    def __init__(self, model: Any, answers: tuple[int, int], batch_bytes: Callable[[int, int], int]) -> None:
        self._model = model
        self._answers = answers
        self._batch_bytes = batch_bytes

    def compute(self, rows: Sequence[Row]) -> Values:
        """Return the scores of pairs, `[rows, 1]`."""
        ids, _ = pad(rows, 0)
        last = mx.array(np.array([len(row.tokens) - 1 for row in rows], np.int32))
        hidden = self._model.model(mx.array(ids))[mx.arange(len(rows)), last]
        head = getattr(self._model, "lm_head", None)
        logits = self._model.model.embed_tokens.as_linear(hidden) if head is None else head(hidden)
        yes, no = self._answers
        return np.array(mx.sigmoid((logits[:, yes] - logits[:, no]).astype(mx.float32))[:, None])

    def event(self, prepared: PreparedRows, index: int, values: Values) -> Score:
        """Return the score of a pair."""
        return score_event(index, values)

    def batch_bytes(self, rows: int, width: int) -> int:
        """Return what a forward pass takes beside the weights."""
        return self._batch_bytes(rows, width)
