"""The encoding of one image by the vision tower, in steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx

from greenroom.engine.vision.chunked_encoder import ChunkedEncoder
from greenroom.engine.vision.image_features import ImageFeatures
from greenroom.engine.vision.prompts.input_arrays import to_mlx
from greenroom.schemas.messages.prepared_input import PreparedImage


class ImageEncoding:
    """Computes an image's features; several prompts may share one.

    Args:
        model: A model of mlx-vlm.
        tokens: Token ids of the image's span.
        clock: Clock in seconds, of any origin.

    Attributes:
        features: The image's features; None until they are computed.
    """

    def __init__(
        self,
        model: Any,
        image: PreparedImage,
        tokens: Sequence[int],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.features: ImageFeatures | None = None
        self._clock = clock
        self._last = 0.0
        inputs = {name: to_mlx(value) for name, value in image.inputs.items()}
        self._count = len(tokens)
        ids = mx.array([list(tokens)])
        mask = mx.ones_like(ids)
        self._pieces = ChunkedEncoder(model, lambda: model.get_input_embeddings(ids, mask=mask, **inputs))

    def advance(self, milliseconds: float) -> None:
        """Compute for about `milliseconds`: at least one piece, then more while they are likely to fit."""
        end = began = self._clock()
        longest = self._last
        while self.features is None:
            before = end
            self._compute_piece()
            end = self._clock()
            self._last = end - before
            longest = max(longest, self._last)
            if (end - began + longest) * 1e3 > milliseconds:
                return

    def _compute_piece(self) -> None:
        if not self._pieces.is_done:
            self._pieces.advance()
            return
        features = ImageFeatures.of(self._pieces.result().to_dict(), self._count)
        mx.eval(features.embeddings, features.layers, features.deep)
        self.features = features
