"""The device that tests compute on: the CPU by default."""

from __future__ import annotations

import os

VARIABLE = "GREENROOM_TEST_DEVICE"
"""Environment variable that selects the device, `gpu` or `cpu` (the default)."""


def choose_device(asked: str | None) -> None:
    """Select the device of this process and of the servers that it starts.

    Tests compare results with other libraries token by token, and only the CPU's results are that exact. Must
    be called before anything is computed.

    Args:
        asked: `cpu` or `gpu`; None selects the CPU if MLX has a GPU.
    """
    import mlx.core as mx

    if asked == "gpu" or (asked is None and not mx.is_available(mx.gpu)):
        return
    from greenroom.engine.loading.devices import use_device
    from greenroom.schemas.settings.settings import Settings

    use_device(Settings(device="cpu"))
    os.environ["GREENROOM_DEVICE"] = "cpu"
