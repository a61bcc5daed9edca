"""Devices that tests compute on: the CPU, unless they are told otherwise."""

from __future__ import annotations

import os

VARIABLE = "GREENROOM_TEST_DEVICE"
"""Names the device in the environment of a test run: `gpu`; `cpu` by default."""


def choose_device(asked: str | None) -> None:
    """Have this process and the servers that it starts compute on a device.

    What is computed is compared with other libraries token by token, which holds on the CPU alone. Must run
    before anything is computed.

    Args:
        asked: `cpu` or `gpu`; None: `cpu`, if there is a GPU at all.
    """
    import mlx.core as mx

    if asked == "gpu" or (asked is None and not mx.is_available(mx.gpu)):
        return
    from greenroom.engine.loading.devices import use_device
    from greenroom.schemas.settings.settings import Settings

    use_device(Settings(device="cpu"))
    os.environ["GREENROOM_DEVICE"] = "cpu"
