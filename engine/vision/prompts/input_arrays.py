"""What a processor has made of an image, on its way from the thread that prepares to the one that computes.

No memory of MLX's may go from thread to thread, so arrays travel as NumPy's. That has no bfloat16.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    import numpy as np


@attrs.frozen(eq=False)
class BrainFloats:
    """Numbers in bfloat16.

    Args:
        bits: Of each number, 16.
    """

    bits: np.ndarray[Any, Any]

    @property
    def nbytes(self) -> int:
        """Bytes that they take."""
        return self.bits.nbytes

    @property
    def size(self) -> int:
        """How many they are."""
        return self.bits.size


def to_numpy(value: Any) -> Any:
    """Return a value of which no memory is MLX's; lists of arrays stay lists."""
    import mlx.core as mx
    import numpy as np

    if isinstance(value, mx.array):
        if value.dtype == mx.bfloat16:
            return BrainFloats(np.array(value.view(mx.uint16)))
        return np.array(value)
    if isinstance(value, list) and any(isinstance(item, mx.array) for item in value):
        return [to_numpy(item) for item in value]
    return value


def to_mlx(value: Any) -> Any:
    """Return a value as mlx-vlm's models take it: lists and texts stay what they are."""
    import mlx.core as mx
    import numpy as np

    if isinstance(value, BrainFloats):
        return mx.array(value.bits).view(mx.bfloat16)
    if isinstance(value, list) and any(isinstance(item, np.ndarray | BrainFloats) for item in value):
        return [to_mlx(item) for item in value]
    return value if isinstance(value, list | str) else mx.array(value)


def size_of(value: Any) -> tuple[int, int]:
    """Return how many numbers a value holds, and their bytes."""
    if isinstance(value, list):
        sizes = [size_of(item) for item in value]
        return sum(count for count, _ in sizes), sum(nbytes for _, nbytes in sizes)
    return getattr(value, "size", 1), getattr(value, "nbytes", 0)
