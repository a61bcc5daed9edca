"""Limits that a device reports, by the keys of each MLX backend."""

from __future__ import annotations

from collections.abc import Mapping

_METAL_PAGE = 16 * 1024
"""Size of a memory page on Apple silicon in bytes, which is the smallest size of a buffer."""


def gpu_memory(information: Mapping[str, str | int]) -> int | None:
    """Return the GPU memory available to a process in bytes; None if the device does not report it.

    Args:
        information: Device information from MLX.
    """
    names = ("max_recommended_working_set_size", "memory_size", "total_memory")
    return next((value for name in names if isinstance(value := information.get(name), int)), None)


def gpu_architecture() -> str | None:
    """Return the architecture of the compute GPU, which determines its kernels; None on a CPU."""
    import mlx.core as mx

    if mx.default_device().type != mx.DeviceType.gpu:
        return None
    return str(mx.device_info().get("architecture", ""))


def buffer_limit() -> int | None:
    """Return the limit on a process's arrays in memory; None if the system has none.

    macOS counts Metal buffers, which also hold arrays for computation on the CPU.
    """
    import mlx.core as mx

    if not mx.metal.is_available():
        return None
    limit = mx.device_info(mx.gpu).get("resource_limit")
    return limit if isinstance(limit, int) else None


def page_bytes() -> int:
    """Return the granularity of array sizes in bytes.

    MLX reports a buffer's own bytes; a Metal buffer smaller than a page still takes a whole page.
    """
    import mlx.core as mx

    return _METAL_PAGE if mx.metal.is_available() else 1
