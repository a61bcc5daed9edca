"""How much memory models may have unless a setting says."""

from __future__ import annotations

import os
from pathlib import Path

from greenroom.engine.device.device_information import gpu_memory

_USABLE_SHARE = 0.85
"""Of the memory that models may have; the rest is for what is computed between two layers, and for buffers
that MLX keeps for reuse."""

_CGROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def default_memory() -> int:
    """Return the bytes for the weights and caches of all models on the device that this thread computes on.

    Metal says what a process had better stay below. CUDA says what the card has and what nobody uses: the
    latter, with what this process has already, is what is left beside other programs. On a CPU it is the
    machine's memory, or the container's.
    """
    import mlx.core as mx

    usable = None
    if mx.default_device() == mx.gpu:
        information = mx.device_info()
        usable = gpu_memory(information)
        free = information.get("free_memory")
        if usable is not None and isinstance(free, int):
            usable = min(usable, free + mx.get_active_memory() + mx.get_cache_memory())
    return int((main_memory() if usable is None else usable) * _USABLE_SHARE)


def main_memory() -> int:
    """Return the bytes of memory that this machine has, or the container that it runs in."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in _CGROUPS:
        try:
            text = Path(path).read_text().strip()
        except OSError:
            continue
        if text.isdigit():
            memory = min(memory, int(text))
    return memory
