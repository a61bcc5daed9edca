"""How much memory models may have unless a setting says."""

from __future__ import annotations

import os
from pathlib import Path

_USABLE_SHARE = 0.85
"""Of the memory that models may have; the rest is for what is computed between two layers, and for buffers
that MLX keeps for reuse."""

_CGROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def default_memory() -> int:
    """Return the bytes for the weights and caches of all models on the device that this thread computes on.

    Metal says what a process had better stay below, CUDA what the card has; on a CPU it is the machine's
    memory, or the container's.
    """
    import mlx.core as mx

    usable = None
    if mx.default_device() == mx.gpu:
        information = mx.device_info()
        names = ("max_recommended_working_set_size", "memory_size", "total_memory")
        usable = next((value for name in names if isinstance(value := information.get(name), int)), None)
    return int((usable or main_memory()) * _USABLE_SHARE)


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
