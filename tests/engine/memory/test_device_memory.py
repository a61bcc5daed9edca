"""Default memory of models, derived from the device's information."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import mlx.core as mx
import pytest

from greenroom.engine.loading.devices import use_device
from greenroom.engine.resources.device_errors import buffer_limit, page_bytes
from greenroom.engine.resources.device_memory import default_memory, main_memory
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.platforms.gpus import CUDA, GIGABYTE, METAL, pretend_gpu

Limits = dict[str, int]
UseGpu = Callable[[Mapping[str, str | int]], Limits]


@pytest.fixture
def use_gpu(monkeypatch: pytest.MonkeyPatch) -> UseGpu:
    """Compute on a GPU that reports this information; return the limits that are set."""

    def use(information: Mapping[str, str | int]) -> Limits:
        _, limits = pretend_gpu(monkeypatch, information)
        use_device(Settings(device="gpu"))
        return limits

    return use


def test_metal_is_limited_in_what_it_keeps(use_gpu: UseGpu) -> None:
    assert use_gpu(METAL) == {"wired": 48 * GIGABYTE, "cache": 3 * GIGABYTE}
    assert default_memory() == int(0.85 * 48 * GIGABYTE)
    assert (buffer_limit(), page_bytes()) == (499_000, 16_384)


def test_cuda_is_limited_in_what_it_keeps_for_reuse(use_gpu: UseGpu) -> None:
    assert use_gpu(CUDA) == {"cache": 5 * GIGABYTE}
    assert (buffer_limit(), page_bytes()) == (None, 1)


def test_models_have_no_memory_of_a_card_that_other_programs_use(
    use_gpu: UseGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mx, "get_active_memory", lambda: 3 * GIGABYTE)
    monkeypatch.setattr(mx, "get_cache_memory", lambda: GIGABYTE)
    use_gpu(CUDA)
    assert default_memory() == int(0.85 * 80 * GIGABYTE)
    use_gpu({**CUDA, "free_memory": 30 * GIGABYTE})
    assert default_memory() == int(0.85 * 34 * GIGABYTE)


def test_a_cpu_counts_no_arrays_and_has_the_memory_of_the_machine() -> None:
    assert default_memory() == int(0.85 * main_memory())
    if not mx.metal.is_available():
        assert (buffer_limit(), page_bytes()) == (None, 1)
