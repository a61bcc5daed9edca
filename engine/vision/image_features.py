"""Features of one image: the inputs of the language model at the image's tokens."""

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
"""Fields of mlx-vlm's `InputEmbeddingsFeatures` that can be computed for a slice of the prompt.

Position ids are computed from the whole prompt instead. The mask is Gemma 3's; no language model reads it.
"""


@attrs.frozen(eq=False)
class ImageFeatures:
    """Evaluated features of a span of tokens.

    Args:
        embeddings: Input embeddings, `[span, hidden]`.
        layers: Inputs of every layer, `[span, layers, width]` (Gemma's per-layer embeddings), or None.
        seen: Mask of the tokens that stand for a part of the image, `[span]` (bool), for `deep`.
        deep: Tensors added to the output of the first layers at those tokens, one per layer, `[seen, hidden]`
            (Qwen3-VL's DeepStack).
    """

    embeddings: mx.array
    layers: mx.array | None = None
    seen: np.ndarray[Any, np.dtype[np.bool_]] | None = None
    deep: tuple[mx.array, ...] = ()

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        layers = 0 if self.layers is None else self.layers.nbytes
        return self.embeddings.nbytes + layers + sum(each.nbytes for each in self.deep)

    def deep_of(self, span: slice) -> list[mx.array]:
        """Return `deep` for a slice of the tokens."""
        if self.seen is None:
            return []
        first, count = int(self.seen[: span.start].sum()), int(self.seen[span].sum())
        return [each[first : first + count] for each in self.deep]

    @classmethod
    def of(cls, output: Mapping[str, Any], count: int) -> ImageFeatures:
        """Return the features in the output of an mlx-vlm model for one row of tokens.

        Args:
            count: Number of tokens in the row.

        Raises:
            ProblemError: 501: a field depends on the whole prompt, or the number of embeddings is not
                `count`.
        """
        parts = {name: value for name, value in output.items() if value is not None}
        if _masks_nothing(parts.get("attention_mask"), count):
            del parts["attention_mask"]
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
        if deep is not None and hasattr(deep, "position_mask"):  # Cohere's Compass has a class for the two
            deep, seen = deep.embeddings, deep.position_mask
        deep = () if deep is None or seen is None else tuple(mx.contiguous(each) for each in deep)
        return cls(
            mx.contiguous(parts["inputs_embeds"][0]),
            None if layers is None else mx.contiguous(layers[0]),
            np.array(seen).reshape(-1) if deep else None,
            deep,
        )


def _masks_nothing(mask: mx.array | None, count: int) -> bool:
    """Return whether a mask is that of a row without padding, which some models return with the features."""
    return mask is not None and mask.shape == (1, count) and bool(mx.all(mask == 1).item())


def _unsupported(detail: str) -> ProblemError:
    return ProblemError(Problem(501, "unsupported_model_type", detail, "model"))
