"""What this machine can compute on."""

from __future__ import annotations

import subprocess
import sys


def has_gpu() -> bool:
    """Whether MLX finds a GPU.

    Another process asks it, so that this one stays free of MLX until a model is loaded.
    """
    ask = "import mlx.core as mx; raise SystemExit(not mx.is_available(mx.gpu))"
    return subprocess.run([sys.executable, "-c", ask], capture_output=True).returncode == 0
