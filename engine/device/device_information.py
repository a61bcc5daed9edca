"""Limits that a device tells of itself, in the words of each backend of MLX."""

from __future__ import annotations

from collections.abc import Mapping

_METAL_PAGE = 16 * 1024
"""Bytes of a page of memory on Apple silicon: no buffer takes less."""


def gpu_memory(information: Mapping[str, str | int]) -> int | None:
    """Return the bytes that a process may have of a GPU's memory; None if the device does not say.

    Args:
        information: Of the device, as MLX tells it.
    """
    names = ("max_recommended_working_set_size", "memory_size", "total_memory")
    return next((value for name in names if isinstance(value := information.get(name), int)), None)


def gpu_architecture() -> str | None:
    """Return the architecture of the GPU that models compute on, which says what kernels; None on a CPU."""
    import mlx.core as mx

    if mx.default_device().type != mx.DeviceType.gpu:
        return None
    return str(mx.device_info().get("architecture", ""))


def buffer_limit() -> int | None:
    """Return how many arrays a process may have in memory at once; None if the system does not count them.

    macOS counts the buffers of Metal, which arrays that a CPU computes with are too.
    """
    import mlx.core as mx

    if not mx.metal.is_available():
        return None
    limit = mx.device_info(mx.gpu).get("resource_limit")
    return limit if isinstance(limit, int) else None


def page_bytes() -> int:
    """Return the bytes of which each array takes a whole number.

    MLX tells the bytes of a buffer; of one of Metal's below a page those are fewer than it takes.
    """
    import mlx.core as mx

    return _METAL_PAGE if mx.metal.is_available() else 1
