"""What a model makes of one image alone: the inputs of its language model for the image's tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import mlx.core as mx
import numpy as np

from greenroom.schemas.problems import Problem, ProblemError

_KNOWN = {
    "inputs_embeds",
    "visual_pos_masks",
    "deepstack_visual_embeds",
    "per_layer_inputs",
    "attention_mask_4d",
    "position_ids",
    "rope_deltas",
}
"""Parts of mlx-vlm's `InputEmbeddingsFeatures` of which a slice can be computed.

Positions follow from the whole prompt. The mask is Gemma 3's, which no language model reads.
"""


@attrs.frozen(eq=False)
class ImageFeatures:
    """Features of a span of tokens, evaluated.

    Args:
        embeddings: `[span, hidden]`.
        layers: Inputs of every layer, `[span, layers, width]` (Gemma's per-layer embeddings), or None.
        seen: Which tokens of the span stand for a part of the image, `[span]` (bool), for `deep`.
        deep: What is added to the first layers' output there, layer by layer, `[seen, hidden]` (Qwen3-VL's
            deepstack).
    """

    embeddings: mx.array
    layers: mx.array | None = None
    seen: np.ndarray[Any, np.dtype[np.bool_]] | None = None
    deep: tuple[mx.array, ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes that it occupies."""
        layers = 0 if self.layers is None else self.layers.nbytes
        return self.embeddings.nbytes + layers + sum(each.nbytes for each in self.deep)

    def deep_of(self, span: slice) -> list[mx.array]:
        """Return `deep` for a part of the tokens."""
        if self.seen is None:
            return []
        first, count = int(self.seen[: span.start].sum()), int(self.seen[span].sum())
        return [each[first : first + count] for each in self.deep]

    @classmethod
    def of(cls, output: Mapping[str, Any], count: int) -> ImageFeatures:
        """Return what one of mlx-vlm's models has returned for one row of tokens.

        Args:
            count: Tokens of the row.

        Raises:
            ProblemError: 501: it has parts that belong to the whole prompt, or is not as long as the row.
        """
        parts = {name: value for name, value in output.items() if value is not None}
        if unknown := parts.keys() - _KNOWN:
            detail = f"This model reads images in a way that is not supported ({', '.join(sorted(unknown))})."
            raise _unsupported(detail)
        made = parts["inputs_embeds"].shape[1]
        if made != count:
            detail = (
                f"mlx-vlm makes {made:,} embeddings of the {count:,} tokens that stand for an image of this "
                "model, so which of them belongs to which token is not known."
            )
            raise _unsupported(detail)
        layers, seen = parts.get("per_layer_inputs"), parts.get("visual_pos_masks")
        deep = parts.get("deepstack_visual_embeds")
        deep = () if deep is None or seen is None else tuple(mx.contiguous(each) for each in deep)
        return cls(
            mx.contiguous(parts["inputs_embeds"][0]),
            None if layers is None else mx.contiguous(layers[0]),
            np.array(seen).reshape(-1) if deep else None,
            deep,
        )


def _unsupported(detail: str) -> ProblemError:
    return ProblemError(Problem(501, "unsupported_model_type", detail, "model"))
