"""Default limit of the memory for models."""

from __future__ import annotations

import os
from pathlib import Path

from greenroom.engine.device.device_information import gpu_memory

USABLE_SHARE = 0.85
"""Fraction of the device's memory for models.

The rest is for temporary results and for buffers that MLX keeps for reuse.
"""

_CGROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def default_memory() -> int:
    """Return the bytes for weights and caches of all models on this thread's device."""
    return int(device_memory() * USABLE_SHARE)


def device_memory() -> int:
    """Return the bytes that this thread's device can give to a process.

    Metal reports a recommended working set. CUDA reports the card's total and its free memory: the latter
    plus this process's own usage is the share left by other programs. On a CPU, it is the memory of the
    machine or container.
    """
    import mlx.core as mx

    usable = None
    if mx.default_device() == mx.gpu:
        information = mx.device_info()
        usable = gpu_memory(information)
        free = information.get("free_memory")
        if usable is not None and isinstance(free, int):
            usable = min(usable, free + mx.get_active_memory() + mx.get_cache_memory())
    return main_memory() if usable is None else usable


def main_memory() -> int:
    """Return the bytes of memory of this machine, or of its container."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in _CGROUPS:
        try:
            text = Path(path).read_text().strip()
        except OSError:
            continue
        if text.isdigit():
            memory = min(memory, int(text))
    return memory
