"""Cross-encoders, which read query and document together and classify the pair."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import mlx.core as mx
import numpy as np

from greenroom.engine.encoding.rerank.scores import score_event
from greenroom.engine.encoding.rows import PreparedRows, Row, Values, pad
from greenroom.schemas.events.result_events import Score

_MEANS_RELEVANT = re.compile(r"relevant|yes|true|positive|match|entailment", re.IGNORECASE)


class CrossEncoder:
    """A loaded classifier of pairs, confined to its thread.

    Args:
        model: A sequence classifier of mlx-vlm.
        config: Content of config.json.
        labels: Number of logits per pair: one, or two for irrelevant and relevant.
        batch_bytes: Memory of a pass in bytes without the weights, by rows and width.
    """

    def __init__(
        self, model: Any, config: Mapping[str, Any], labels: int, batch_bytes: Callable[[int, int], int]
    ) -> None:
        self._model = model
        self._padding = int(config.get("pad_token_id") or 0)
        self._relevant = _relevant_label(config) if labels > 1 else 0
        self._exclusive = labels > 1 and config.get("problem_type") != "multi_label_classification"
        self._batch_bytes = batch_bytes

    def compute(self, rows: Sequence[Row]) -> Values:
        """Return the scores of pairs, `[rows, 1]`."""
        ids, mask = pad([row.tokens for row in rows], self._padding)
        types = {}
        if rows[0].second is not None:
            begins = np.array([row.second for row in rows], np.int32)[:, None]
            types["token_type_ids"] = mx.array((np.arange(ids.shape[1]) >= begins).astype(np.int32) * mask)
        output = self._model(mx.array(ids), attention_mask=mx.array(mask), **types)
        logits = output.logits.astype(mx.float32)
        scores = mx.softmax(logits, axis=-1) if self._exclusive else mx.sigmoid(logits)
        relevant = scores[:, self._relevant, None]
        mx.eval(relevant)
        return np.array(relevant)

    def event(self, prepared: PreparedRows, index: int, values: Values) -> Score:
        return score_event(index, values)

    def batch_bytes(self, rows: int, width: int) -> int:
        return self._batch_bytes(rows, width)


def _relevant_label(config: Mapping[str, Any]) -> int:
    """Return the index of the label for relevance: the second, unless the labels' names say otherwise."""
    names = config.get("id2label")
    first, second = (str(names.get(str(n), "")) for n in (0, 1)) if isinstance(names, dict) else ("", "")
    negated = re.compile(r"^(?:not|non|ir|un|in)", re.IGNORECASE)
    first_means = _MEANS_RELEVANT.search(first) is not None and negated.search(first) is None
    second_means = _MEANS_RELEVANT.search(second) is not None and negated.search(second) is None
    return 0 if first_means and not second_means else 1
