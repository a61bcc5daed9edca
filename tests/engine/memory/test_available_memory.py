"""Memory that other programs leave, as Linux and macOS tell it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from greenroom.engine.resources import device_memory as module
from greenroom.engine.resources.device_memory import available_memory

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
