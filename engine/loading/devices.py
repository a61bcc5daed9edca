"""Compute devices of this machine, and MLX's memory limits on them."""

from __future__ import annotations

import subprocess
import sys
import threading
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path

from greenroom.engine.loading.libraries import import_array_library
from greenroom.engine.resources.device_errors import gpu_memory
from greenroom.schemas.problems import Problem, ProblemError
from greenroom.schemas.settings.setting_groups import Dtype
from greenroom.schemas.settings.settings import Settings

_REUSE_SHARE = 1 / 16
"""Share of the GPU's memory that MLX may keep as a buffer cache; its own limit is all of it."""

_lock = threading.Lock()
_device: str | None = None  # Device of the process once its first model is loaded: `cpu` or `gpu`


def has_gpu() -> bool:
    """Return whether MLX finds a GPU.

    A child process checks, so that this one does not import MLX before a model is loaded.
    """
    ask = "import mlx.core as mx; raise SystemExit(not mx.is_available(mx.gpu))"
    return subprocess.run([sys.executable, "-c", ask], capture_output=True).returncode == 0


def can_compute() -> bool:
    """Return whether MLX was installed with its library, which on Linux is a package of its own.

    Where the library does not lie beside MLX, another process tells whether it is found.
    """
    spec = find_spec("mlx")
    places = () if spec is None else spec.submodule_search_locations or ()
    if any(any(Path(place, "lib").glob("libmlx.*")) for place in places):
        return True
    return subprocess.run([sys.executable, "-c", "import mlx.core"], capture_output=True).returncode == 0


def use_device(settings: Settings) -> None:
    """Select the device of the settings for this process and set memory limits; the first call is final.

    MLX has one default device for all threads. If it changed, other models' threads would build operations
    for the other device, while their compiled functions would stay on the device of their first trace.

    Raises:
        ProblemError: 503 if there is no such device, or models already use the other one.
    """
    import_array_library()
    import mlx.core as mx

    global _device
    gpu = mx.is_available(mx.gpu)
    if settings.device == "gpu" and not gpu:
        detail = "device = 'gpu' was asked for, but MLX finds no GPU on this machine."
        raise ProblemError(Problem(503, "load_failed", detail))
    device = mx.DeviceType.gpu if gpu and settings.device != "cpu" else mx.DeviceType.cpu
    with _lock:
        if _device is not None and settings.device == "auto":
            return
        if _device is None:
            mx.set_default_device(mx.Device(device))
            if device == mx.DeviceType.gpu:
                _limit_memory()
            _device = device.name
        elif _device != device.name:
            detail = (
                f"device = '{settings.device}' was asked for, but this process computes on the {_device} "
                "since its first model; MLX has one device for a process."
            )
            raise ProblemError(Problem(503, "load_failed", detail))


def has_memory_of_its_own() -> bool:
    """Return whether models are on a GPU with memory of its own; False before the first `use_device`.

    Does not import MLX. Apple's GPUs share the machine's memory; a CUDA device does not.
    """
    return _device == "gpu" and sys.platform != "darwin"


def computes_on_cpu() -> bool:
    """Return whether models compute on a CPU; False before the first `use_device`. Does not import MLX."""
    return _device == "cpu"


def computes_on_gpu() -> bool:
    """Return whether models compute on a GPU; call `use_device` first."""
    import mlx.core as mx

    return mx.default_device().type == mx.DeviceType.gpu


def weight_type(settings: Settings, slow: bool) -> Dtype:
    """Return the type that floating-point weights and activations get; `auto` keeps the file's.

    On a CPU, MLX multiplies packed weights 6 times slower in bfloat16 than in float32, and anything 30 times
    slower in float16. Does not import MLX: before the first `use_device` the packages tell the device.

    Args:
        slow: True for packed weights, and for those that a library casts to float16.
    """
    if settings.dtype != "auto" or not slow:
        return settings.dtype
    return "float32" if expects_cpu(settings) else "auto"


def expects_cpu(settings: Settings) -> bool:
    """Return whether models compute on a CPU, or will: before the first `use_device` the packages tell."""
    if _device is None and settings.device == "auto":
        return _has_cpu_alone()
    return (_device or settings.device) == "cpu"


@lru_cache
def _has_cpu_alone() -> bool:
    """Return whether MLX is installed with its backend for CPUs, which is a package of its own."""
    try:
        distribution("mlx-cpu")
    except PackageNotFoundError:
        return False
    return True


def _limit_memory() -> None:
    """Set process-wide memory limits, which must not change while anything computes."""
    import mlx.core as mx

    information = mx.device_info()
    memory = gpu_memory(information)
    if memory is None:
        return
    if "max_recommended_working_set_size" in information:  # Metal only
        mx.set_wired_limit(memory)
    mx.set_cache_limit(int(memory * _REUSE_SHARE))
