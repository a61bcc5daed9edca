"""Default memory of models, derived from the device's information."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import mlx.core as mx
import pytest

from greenroom.engine.loading.devices import use_device
from greenroom.engine.resources import device_memory as module
from greenroom.engine.resources.device_errors import buffer_limit, page_bytes
from greenroom.engine.resources.device_memory import available_memory, default_memory, main_memory
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.platforms.gpus import CUDA, GIGABYTE, METAL, pretend_gpu

MEMINFO = "MemTotal:       16000 kB\nMemFree:          100 kB\nMemAvailable:     4000 kB\n"


@pytest.fixture
def on_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")


@pytest.mark.usefixtures("on_linux")
def test_linux_tells_what_is_available_to_the_machine_and_its_container(tmp_path: Path) -> None:
    proc, cgroup = tmp_path / "proc", tmp_path / "cgroup"
    proc.mkdir()
    cgroup.mkdir()
    assert available_memory(proc, cgroup) is None
    (proc / "meminfo").write_text(MEMINFO)
    assert available_memory(proc, cgroup) == 4000 * 1024
    (cgroup / "memory.max").write_text("max\n")
    (cgroup / "memory.current").write_text("3000000\n")
    assert available_memory(proc, cgroup) == 4000 * 1024
    (cgroup / "memory.max").write_text("3500000\n")
    assert available_memory(proc, cgroup) == 500_000
    # File contents in memory are dropped when the memory is needed.
    (cgroup / "memory.stat").write_text("anon 7\ninactive_file 200000\nactive_file 9\n")
    assert available_memory(proc, cgroup) == 700_000


@pytest.mark.parametrize(("level", "available"), [(0, None), (1, None), (2, None), (4, 0)])
def test_macos_has_nothing_left_under_critical_pressure(
    level: int, available: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(module, "_pressure_level", lambda: level)
    assert available_memory() == available


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
