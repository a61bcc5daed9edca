"""Conversion of a processor's output between MLX and NumPy, to pass it between threads.

MLX arrays must not move from thread to thread, so the data travels as NumPy arrays. NumPy has no bfloat16.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    import numpy as np


@attrs.frozen(eq=False)
class BrainFloats:
    """An array of bfloat16 numbers.

    Args:
        bits: The numbers' bits as an array of uint16.
    """

    bits: np.ndarray[Any, Any]

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.bits.nbytes

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.bits.size


def to_numpy(value: Any) -> Any:
    """Return a value without MLX memory; lists of arrays stay lists."""
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
    """Return a value as mlx-vlm's models take it; lists and strings stay as they are."""
    import mlx.core as mx
    import numpy as np

    if isinstance(value, BrainFloats):
        return mx.array(value.bits).view(mx.bfloat16)
    if isinstance(value, list) and any(isinstance(item, np.ndarray | BrainFloats) for item in value):
        return [to_mlx(item) for item in value]
    return value if isinstance(value, list | str) else mx.array(value)


def size_of(value: Any) -> tuple[int, int]:
    """Return a value's number of elements and its bytes."""
    if isinstance(value, list):
        sizes = [size_of(item) for item in value]
        return sum(count for count, _ in sizes), sum(nbytes for _, nbytes in sizes)
    return getattr(value, "size", 1), getattr(value, "nbytes", 0)
