"""Pretended GPUs, with the properties that MLX reports for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mlx.core as mx
import pytest

from greenroom.engine.loading import devices

GIGABYTE = 1 << 30
METAL: Mapping[str, str | int] = {
    "architecture": "applegpu_g15s",
    "max_recommended_working_set_size": 48 * GIGABYTE,
    "memory_size": 64 * GIGABYTE,
    "resource_limit": 499_000,
}
CUDA: Mapping[str, str | int] = {
    "architecture": "sm_90",
    "total_memory": 80 * GIGABYTE,
    "free_memory": 76 * GIGABYTE,
}


def pretend_gpu(
    monkeypatch: pytest.MonkeyPatch, information: Mapping[str, str | int]
) -> tuple[list[Any], dict[str, int]]:
    """Make MLX report a GPU with these properties; nothing can be computed on it.

    Returns:
        Devices selected as the default, and memory limits set, by name.
    """
    chosen, limits = list[Any](), dict[str, int]()
    monkeypatch.setattr(devices, "_device", None)
    monkeypatch.setattr(mx, "is_available", lambda device: True)
    monkeypatch.setattr(mx.metal, "is_available", lambda: "resource_limit" in information)
    monkeypatch.setattr(mx, "set_default_device", chosen.append)
    monkeypatch.setattr(mx, "default_device", lambda: chosen[-1] if chosen else mx.Device(mx.gpu))
    monkeypatch.setattr(mx, "device_info", lambda device=None: dict(information))
    monkeypatch.setattr(mx, "set_wired_limit", lambda limit: limits.update(wired=limit))
    monkeypatch.setattr(mx, "set_cache_limit", lambda limit: limits.update(cache=limit))
    return chosen, limits
