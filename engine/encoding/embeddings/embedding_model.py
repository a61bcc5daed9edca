"""A loaded embedding model: encoder, pooling, further layers and normalization."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx
import numpy as np

from greenroom.engine.catalog.files.sentence_transformers_config import SentenceTransformersConfig
from greenroom.engine.encoding.embeddings.hidden_states import Encode
from greenroom.engine.encoding.embeddings.layers import load_layer
from greenroom.engine.encoding.embeddings.pooling import pool
from greenroom.engine.encoding.embeddings.prepared_texts import PreparedTexts
from greenroom.engine.encoding.pass_cost import PassCost
from greenroom.engine.encoding.rows import Row, Values, pad
from greenroom.schemas.events.result_events import Vector
from greenroom.schemas.problems import ProblemError, model_broken

_SMALLEST = 1e-12
"""Norm below which a vector is not scaled to 1."""


class EmbeddingModel:
    """Computes embeddings of rows; implements `greenroom.engine.encoding.rows.RowModel`.

    Args:
        encode: The encoder.
        padding: Id of the padding token.
        files: The model's sentence-transformers configuration.
        cost: Memory model of a forward pass.
    """

    def __init__(
        self, encode: Encode, padding: int, files: SentenceTransformersConfig, cost: PassCost
    ) -> None:
        self._encode = encode
        self._padding = padding
        self._files = files
        self._cost = cost
        self._layers = [load_layer(layer) for layer in files.layers]

    def compute(self, rows: Sequence[Row]) -> Values:
        """Return the embeddings of rows at full width, `[rows, width]`."""
        ids, mask = pad([row.tokens for row in rows], self._padding)
        counted = mask
        if not self._files.pooling.include_prompt and any(row.instructed for row in rows):
            counted = mask.copy()
            for at, row in enumerate(rows):
                counted[at, : row.instructed] = 0
        hidden = self._encode(mx.array(ids), mx.array(mask))
        vectors = pool(hidden, mx.array(counted), self._files.pooling.modes)
        for layer in self._layers:
            vectors = layer(vectors)
        vectors = vectors.astype(mx.float32)
        mx.eval(vectors)
        values = np.array(vectors)
        return _normalize(values) if self._files.normalized else values

    def event(self, prepared: PreparedTexts, index: int, values: Values) -> Vector:
        """Return the vector of text `index`, cut to the dimensions that its request wants.

        Raises:
            ProblemError: 503 `model_broken`: the model computed NaN or infinity.
        """
        if not np.isfinite(values).all():
            raise ProblemError(model_broken(f"text {index}", prepared.param))
        if prepared.dimensions is not None and prepared.dimensions < len(values):
            values = values[: prepared.dimensions]
            if self._files.normalized:
                values = _normalize(values)
        return Vector(values.astype("<f4").tobytes(), index)

    def batch_bytes(self, rows: int, width: int) -> int:
        return self._cost.batch_bytes(rows, width)


def _normalize(values: Values) -> Values:
    """Return vectors scaled to norm 1."""
    lengths = np.linalg.norm(values.astype(np.float64), axis=-1, keepdims=True)
    normalized: Values = (values / np.maximum(lengths, _SMALLEST)).astype(np.float32)
    return normalized
