"""Selection of the device: tests compute on the CPU by default."""

from __future__ import annotations

import os

import mlx.core as mx
import pytest

from greenroom.engine.loading.devices import use_device
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.platforms.chosen_device import choose_device
from greenroom.tests.support.platforms.gpus import METAL, pretend_gpu


@pytest.mark.parametrize(
    ("asked", "device"), [(None, mx.DeviceType.cpu), ("cpu", mx.DeviceType.cpu), ("gpu", mx.DeviceType.gpu)]
)
def test_models_compute_on_the_cpu_of_a_mac_unless_its_gpu_is_asked_for(
    asked: str | None, device: mx.DeviceType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GREENROOM_DEVICE", "auto")
    chosen, _ = pretend_gpu(monkeypatch, METAL)
    choose_device(asked)
    use_device(Settings())
    assert chosen == [mx.Device(device)]
    assert os.environ["GREENROOM_DEVICE"] == ("auto" if asked == "gpu" else "cpu")
