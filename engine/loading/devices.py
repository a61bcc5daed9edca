"""What this machine can compute on, and what MLX may take of it."""

from __future__ import annotations

import subprocess
import sys
import threading

from greenroom.schemas.problems import Problem, ProblemError
from greenroom.schemas.settings import Settings

_REUSE_SHARE = 1 / 16
"""Share of the GPU's memory that MLX may keep for reuse; its own limit is all of it."""

_lock = threading.Lock()
_limited = False


def has_gpu() -> bool:
    """Return whether MLX finds a GPU.

    Another process asks it, so that this one stays free of MLX until a model is loaded.
    """
    ask = "import mlx.core as mx; raise SystemExit(not mx.is_available(mx.gpu))"
    return subprocess.run([sys.executable, "-c", ask], capture_output=True).returncode == 0


def use_device(settings: Settings) -> None:
    """Have this thread's arrays computed where the settings say, within limits set once per process.

    The limits are process-wide and must not change while anything computes, so no model touches them again.

    Raises:
        ProblemError: 503 if there is no such device.
    """
    import mlx.core as mx

    global _limited
    gpu = mx.is_available(mx.gpu)
    if settings.device == "gpu" and not gpu:
        detail = "device = 'gpu' was asked for, but MLX finds no GPU on this machine."
        raise ProblemError(Problem(503, "load_failed", detail))
    on_gpu = gpu and settings.device != "cpu"
    mx.set_default_device(mx.gpu if on_gpu else mx.cpu)
    with _lock:
        if _limited or not on_gpu:
            return
        limit = mx.device_info().get("max_recommended_working_set_size")
        if isinstance(limit, int):
            mx.set_wired_limit(limit)
            mx.set_cache_limit(int(limit * _REUSE_SHARE))
        _limited = True
