"""test_device_errors."""

from __future__ import annotations

import contextlib
import importlib.util
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from greenroom.engine.resources.device_errors import (
    Crash,
    DeviceError,
    check_device,
    crash_of,
    find_late_crash,
    is_device_error,
    raise_unless_own,
    synchronize_streams,
)
from greenroom.schemas.problems import Problem, ProblemError, load_failed

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


OUT_OF_MEMORY = "[METAL] Command buffer execution failed: Insufficient Memory (00000008:kIOGPU...)."


@pytest.mark.parametrize(
    "message",
    [
        OUT_OF_MEMORY,
        "[METAL] Command buffer execution failed: Ignored (for causing prior/excessive GPU errors)",
        "[metal::malloc] Resource limit (499000) exceeded.",
        "[metal::CommandEncoder] Failed to make new command queue.",
        "[malloc] Unable to allocate 4096 bytes.",
        "[Event::Event] Failed to create Metal shared event.",
        "[Fence::wait] Failed.",
        "[read] Unable to read from file.",
        "CUDA error",
        "[cuda] out of memory",
        "cudaStreamSynchronize(stream_) failed: an illegal memory access was encountered",
        "cuLaunchKernel( kernel) failed: unspecified launch failure",
        "cublasLtMatmul( handle) failed with code: 13.",
    ],
)
def test_messages_of_mlx_that_name_the_device_are_its_errors(message: str) -> None:
    assert is_device_error(RuntimeError(message))


@pytest.mark.parametrize(
    "error",
    [
        ValueError(OUT_OF_MEMORY),
        NotImplementedError(OUT_OF_MEMORY),
        ProblemError(Problem(400, "invalid_value", OUT_OF_MEMORY)),
        RuntimeError(f"the client wrote: {OUT_OF_MEMORY}"),
        RuntimeError("[matmul] dtype must be inexact."),
        RuntimeError("[metal::Device] Unable to load kernel gather"),
        RuntimeError("There is no Stream(gpu, 0) in current thread."),
        RuntimeError("curious"),
        None,
    ],
)
def test_nothing_else_is(error: Exception | None) -> None:
    assert not is_device_error(error)


def test_a_library_that_catches_one_and_raises_its_own_hides_nothing() -> None:
    def library(*, explicitly: bool) -> None:
        try:
            raise RuntimeError(OUT_OF_MEMORY)
        except RuntimeError as error:
            if explicitly:
                raise ValueError("cannot speak") from error
            raise ValueError("cannot speak")  # noqa: B904

    for explicitly in (True, False):
        with pytest.raises(ValueError, match="cannot speak") as raised:
            library(explicitly=explicitly)
        assert is_device_error(raised.value)


def test_causes_that_form_a_circle_come_to_an_end() -> None:
    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__cause__ = other, one
    assert not is_device_error(one)


def on_a_worker(look: Callable[[], None]) -> None:
    """Check on a thread of its own: on the main thread, MLX throws CPU errors earlier."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            look()
        except BaseException as error:
            raised.append(error)
        mx.clear_streams()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if raised:
        raise raised[0]


def read_torn_file(folder: Path, stream: Any = mx.cpu) -> None:
    """Launch the read of a file that was truncated after it was opened; the launch itself succeeds."""
    path = folder / "torn.safetensors"
    launched = False
    while not launched:
        mx.save_safetensors(str(path), {"weight": mx.ones((64, 64))})
        weights = mx.load(str(path), stream=stream)
        path.write_bytes(path.read_bytes()[:2048])
        with contextlib.suppress(RuntimeError):  # it has failed already
            mx.async_eval(weights)
            launched = True


def test_a_real_error_that_is_still_to_come_is_found(tmp_path: Path) -> None:
    def look() -> None:
        read_torn_file(tmp_path)
        with pytest.raises(RuntimeError) as raised:
            synchronize_streams()
        assert is_device_error(raised.value)
        synchronize_streams()

    on_a_worker(look)


def test_an_error_in_the_stream_of_a_library_is_found_before_an_answer_ends(tmp_path: Path) -> None:
    from mlx_audio.lm.generate import generation_stream

    def look() -> None:
        read_torn_file(tmp_path, generation_stream)
        with pytest.raises(DeviceError, match="Unable to read"):
            check_device(idle=True)
        check_device(idle=True)

    on_a_worker(look)


def test_models_that_speak_or_hear_compute_on_no_other_stream_of_their_library() -> None:
    spec = importlib.util.find_spec("mlx_audio")
    assert spec is not None
    assert spec.origin is not None
    home = Path(spec.origin).parent
    making = {
        file.relative_to(home).as_posix()
        for room in ("lm", "codec", "tts/models", "stt/models")
        for file in (home / room).rglob("*.py")
        if "tests" not in file.relative_to(home).parts
        and re.search(r"new_(thread_local_)?stream\(", file.read_text(encoding="utf-8"))
    }
    assert making == {"lm/generate.py"}


def test_a_request_is_not_blamed_while_an_error_is_still_to_come(tmp_path: Path) -> None:
    def look() -> None:
        raise_unless_own(ValueError("its own"))
        read_torn_file(tmp_path)
        with pytest.raises(RuntimeError, match="Unable to read"):
            raise_unless_own(ValueError("its own"))
        raise_unless_own(ValueError("its own"))

    on_a_worker(look)


def test_an_error_of_the_device_is_never_a_request_s() -> None:
    with pytest.raises(RuntimeError, match="METAL"):
        raise_unless_own(RuntimeError(OUT_OF_MEMORY))
