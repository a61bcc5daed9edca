"""Memory that models may take by default, and memory that is free now."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from greenroom.engine.resources.device_errors import gpu_memory

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
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in _CGROUPS:
        try:
            text = Path(path).read_text().strip()
        except OSError:
            continue
        if text.isdigit():
            memory = min(memory, int(text))
    return memory


PROC = Path("/proc")
CGROUP = Path("/sys/fs/cgroup")

_CRITICAL = 4  # Level of macOS's memory pressure at which the system ends programs (`<dispatch/source.h>`)


def available_memory(proc: Path = PROC, cgroup: Path = CGROUP) -> int | None:
    """Return the bytes that a program can still get; None if the system does not tell.

    On Linux it is the kernel's own estimate, and what the container has left; file contents in memory count
    as available. macOS compresses and swaps before it runs out, so its memory pressure decides: under
    critical pressure nothing is available.
    """
    if sys.platform == "darwin":
        return 0 if _pressure_level() >= _CRITICAL else None
    known = [nbytes for nbytes in (_of_machine(proc), _of_container(cgroup)) if nbytes is not None]
    return min(known, default=None)


def _of_machine(proc: Path) -> int | None:
    for line in _read(proc / "meminfo").splitlines():
        name, _, amount = line.partition(":")
        if name == "MemAvailable":
            return int(amount.split()[0]) * 1024
    return None


def _of_container(cgroup: Path) -> int | None:
    """Return the bytes left below the limit of control groups, version 2; None without such a limit."""
    limit, used = _read(cgroup / "memory.max").strip(), _read(cgroup / "memory.current").strip()
    if not limit.isdigit() or not used.isdigit():
        return None
    files = next(
        (
            int(line.split()[1])
            for line in _read(cgroup / "memory.stat").splitlines()
            if line.startswith("inactive_file ")
        ),
        0,
    )
    return max(0, int(limit) - int(used) + files)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _pressure_level() -> int:
    """Return macOS's memory pressure level: 1 normal, 2 warning, 4 critical; 0 if unknown."""
    import ctypes

    level, size = ctypes.c_int(0), ctypes.c_size_t(ctypes.sizeof(ctypes.c_int))
    library = ctypes.CDLL(None)
    name = b"kern.memorystatus_vm_pressure_level"
    failed = library.sysctlbyname(name, ctypes.byref(level), ctypes.byref(size), None, 0)
    return 0 if failed else level.value
