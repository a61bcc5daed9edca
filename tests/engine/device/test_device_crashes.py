"""Severity of device errors; real errors of truncated files come from a real stream."""

from __future__ import annotations

import contextlib
import sys
import threading
from pathlib import Path

import mlx.core as mx
import pytest

from greenroom.engine.resources.device_errors import Crash, crash_of, find_late_crash
from greenroom.schemas.problems import ProblemError, load_failed

FAILED = "[METAL] Command buffer execution failed: "
IGNORED = (
    f"{FAILED}Ignored (for causing prior/excessive GPU errors) "
    "(00000004:kIOGPUCommandBufferCallbackErrorSubmissionsIgnored)"
)
TIMED_OUT = f"{FAILED}Caused GPU Timeout Error (00000002:kIOGPUCommandBufferCallbackErrorTimeout)"
STARVED = f"{FAILED}Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)"


@pytest.mark.parametrize(
    ("error", "crash"),
    [
        (RuntimeError(IGNORED), Crash.REFUSED),
        (RuntimeError(TIMED_OUT), Crash.DEVICE),
        (RuntimeError("cudaStreamSynchronize(stream_) failed: an illegal memory access"), Crash.DEVICE),
        (RuntimeError(STARVED), Crash.MEMORY),
        (RuntimeError("cudaMallocAsync(&data, size, stream) failed: out of memory"), Crash.MEMORY),
        (RuntimeError("[metal::malloc] Resource limit (499000) exceeded."), Crash.CODE),
        (RuntimeError("[malloc] Unable to allocate 4096 bytes."), Crash.CODE),
        (RuntimeError("[read] Unable to read 4096 bytes from file."), Crash.CODE),
        (ValueError(IGNORED), Crash.CODE),
        (RuntimeError(f"a model says: {IGNORED}"), Crash.CODE),
        (SystemExit(3), Crash.CODE),
    ],
)
def test_errors_concern_more_or_less_of_the_device(error: BaseException, crash: Crash) -> None:
    assert crash_of(error) is crash


@pytest.mark.parametrize(
    ("message", "crash"),
    [(IGNORED, Crash.REFUSED), (TIMED_OUT, Crash.DEVICE), ("[read] Unable to read.", Crash.CODE)],
)
def test_a_failed_load_is_judged_by_what_led_to_it(message: str, crash: Crash) -> None:
    def load() -> None:
        try:
            raise RuntimeError(message)
        except RuntimeError as error:
            raise ProblemError(load_failed("m", str(error))) from error

    with pytest.raises(ProblemError) as raised:
        load()
    assert crash_of(raised.value) is crash


def look_twice(path: Path, files: int) -> list[Crash | None]:
    """Launch reads of truncated files, and look for pending errors twice."""
    found: list[Crash | None] = []

    def run() -> None:
        launched = 0
        while launched < files:
            torn = path / f"{launched}.safetensors"
            mx.save_safetensors(str(torn), {"one": mx.ones((512, 512)), "two": mx.ones((512, 512))})
            weights = mx.load(str(torn))
            assert isinstance(weights, dict)
            torn.write_bytes(torn.read_bytes()[:2048])
            with contextlib.suppress(RuntimeError):  # the first has failed before the second was launched
                mx.async_eval(list(weights.values()))
                launched += 1
        found.extend((find_late_crash(), find_late_crash()))
        mx.clear_streams()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return found


def test_a_torn_file_is_no_fault_of_the_device_and_leaves_no_error_behind(tmp_path: Path) -> None:
    assert look_twice(tmp_path, 1) == [Crash.CODE, None]


def test_nothing_comes_to_light_where_nothing_has_failed(tmp_path: Path) -> None:
    assert look_twice(tmp_path, 0) == [None, None]


def test_both_streams_are_waited_for_and_the_worse_error_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    # With a GPU, a thread has two streams; this stands in for them.
    pending = {"cpu": ["[read] Unable to read."], "gpu": [TIMED_OUT]}

    def synchronize(stream: object) -> None:
        if messages := pending.get(str(stream)):
            raise RuntimeError(messages.pop())

    monkeypatch.setattr(mx, "is_available", lambda _: True)
    monkeypatch.setattr(mx, "default_stream", lambda device: "cpu" if device == mx.cpu else "gpu")
    monkeypatch.setattr(mx, "synchronize", synchronize)
    assert find_late_crash() is Crash.DEVICE
    assert pending == {"cpu": [], "gpu": []}
    assert find_late_crash() is None


def test_a_stream_that_never_comes_clean_costs_its_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    def synchronize(_: object) -> None:
        raise RuntimeError("[read] Unable to read.")

    monkeypatch.setattr(mx, "synchronize", synchronize)
    assert find_late_crash() is Crash.MEMORY


def test_a_process_without_mlx_imports_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "mlx.core")
    assert find_late_crash() is None
    assert "mlx.core" not in sys.modules
