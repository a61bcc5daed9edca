"""Errors of the compute device, which surface late, once, and in unrelated code; its crashes and its name.

Since 0.32.1, MLX keeps the message of a failed command buffer, throws it at the next launch or wait on the
same thread, and then forgets it (`mlx/error.h`). The buffer's output arrays still read as numbers. So the
cause of an exception is unknown until the streams have been waited for.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import IntEnum
from typing import Any

_BEGINNINGS = re.compile(
    r"\[METAL\]"  # a failed command buffer: mlx/backend/metal/device.cpp
    r"|\[metal::(?:malloc|CommandEncoder)\]"
    r"|\[malloc\]"
    r"|\[(?:Event|Fence)\b"
    r"|\[read\]"  # of a file, on a CPU stream: mlx/io/load.cpp
    r"|\[cuda|CUDA"
    r"|cu(?:da|blas|dnn|fft|[A-Z])\w*\("  # the failed call, as `CHECK_CUDA_ERROR` names it
)

_WITH_STREAMS = ("mlx_audio.lm.generate",)
"""Modules of libraries with a `generation_stream` of their own, which keeps its errors separate."""


class DeviceError(RuntimeError):
    """Some earlier work on the device has failed; which work is unknown."""


def is_device_error(error: BaseException | None) -> bool:
    """Return whether an exception is a device error, or was raised because of one.

    MLX raises plain RuntimeErrors that start with their origin; no client can write such a start.
    """
    return any(True for _ in device_errors_in(error))


def device_errors_in(error: BaseException | None) -> Iterator[RuntimeError]:
    """Yield the device errors among an exception, its causes and its contexts."""
    for each in chain(error):
        if isinstance(each, DeviceError) or (type(each) is RuntimeError and is_device_message(str(each))):
            yield each


def is_device_message(text: str) -> bool:
    return _BEGINNINGS.match(text) is not None


def synchronize_streams() -> None:
    """Wait for all work of this thread on the CPU and the GPU.

    `mx.synchronize` alone checks the default stream. Errors in reading files stay in the CPU's stream, and
    those of many speech models in their library's stream.

    Raises:
        DeviceError: Some of the work has failed.
    """
    import mlx.core as mx

    for stream in _streams():
        with _naming_the_device():
            mx.synchronize(stream)


def check_device(*, idle: bool) -> None:
    """Check that the finished work of this thread succeeded, which its numbers alone do not show.

    A complete array is read without a check of its buffer's status (`array::wait`), so a value is valid only
    if this raises nothing after it was read.

    Args:
        idle: True if no pending work is awaited by a request, so that all work may be waited for. Otherwise a
            tiny operation is launched, since MLX throws pending errors at the next launch.

    Raises:
        DeviceError: Some work has failed.
    """
    import mlx.core as mx

    if idle:
        synchronize_streams()
    else:
        with _naming_the_device():
            mx.async_eval(mx.array(0) + 1)


def raise_unless_own(error: BaseException) -> None:
    """Raise a device error if the device may have caused this error; call before failing any request for it.

    Raises:
        BaseException: The error itself if it is the device's, or a device error that was pending. Such an
            error may have corrupted anything this thread has computed since it last waited.
    """
    if is_device_error(error):
        raise error
    synchronize_streams()


def _streams() -> Iterator[Any]:
    """Yield the streams on which this thread may have launched work."""
    import mlx.core as mx

    for name in _WITH_STREAMS:
        module = sys.modules.get(name)
        if module is not None:
            yield module.generation_stream
    for device in (mx.cpu, mx.gpu):
        if mx.is_available(device):
            yield mx.default_stream(device)


@contextmanager
def _naming_the_device() -> Iterator[None]:
    """Convert errors of waiting to device errors, since waiting has no other cause of failure."""
    try:
        yield
    except RuntimeError as error:
        raise DeviceError(str(error)) from error


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception and, transitively, its causes and contexts."""
    seen = set[int]()
    pending = [error]
    while pending:
        each = pending.pop()
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            yield each
            pending += [each.__cause__, each.__context__]


_REFUSED_BEFOREHAND = ("[metal::malloc]", "[malloc]", "[read]", "[load")
"""Prefixes of errors raised before any computation: a refused allocation, or a truncated file."""

_OUT_OF_MEMORY = ("OutOfMemory", "out of memory", "Insufficient Memory")
_SUBMISSIONS_IGNORED = "SubmissionsIgnored"
"""Part of macOS's name for its refusal of further work after "prior/excessive" errors."""

_TRIES = 5
"""Number of waits for a stream's errors.

A stream throws an error once and forgets it; one that throws more often must not be used again.
"""


class Crash(IntEnum):
    """Severity of a crash, from an error in code to a lost device."""

    CODE = 1
    """Error in code, a file or a size; no computation on the device failed."""
    MEMORY = 2
    """Lack of memory or an unknown failure in a computation; its thread may be corrupt."""
    DEVICE = 3
    """Failed computation on the device."""
    REFUSED = 4
    """Refusal by the system of any further work from this process."""


def crash_of(error: BaseException) -> Crash:
    """Return the severity of an error, including the errors that led to it."""
    return max((_degree(str(each)) for each in device_errors_in(error)), default=Crash.CODE)


def find_late_crash() -> Crash | None:
    """Wait for all work of this thread; return the worst failure found, and clear pending errors.

    Waits for both streams, since files are read on the CPU's stream, whatever device computes. Does not
    import MLX.
    """
    if "mlx.core" not in sys.modules:
        return None
    found: list[Crash] = []
    for _ in range(_TRIES):
        try:
            synchronize_streams()
            break
        except RuntimeError as error:
            found.append(crash_of(error))
    else:
        found.append(Crash.MEMORY)
    return max(found, default=None)


def _degree(text: str) -> Crash:
    if text.startswith(_REFUSED_BEFOREHAND):
        return Crash.CODE
    if _SUBMISSIONS_IGNORED in text:
        return Crash.REFUSED
    if any(words in text for words in _OUT_OF_MEMORY) or not is_device_message(text):
        return Crash.MEMORY
    return Crash.DEVICE


_METAL_PAGE = 16 * 1024
"""Size of a memory page on Apple silicon in bytes, which is the smallest size of a buffer."""


def gpu_memory(information: Mapping[str, str | int]) -> int | None:
    """Return the GPU memory available to a process in bytes; None if the device does not report it."""
    names = ("max_recommended_working_set_size", "memory_size", "total_memory")
    return next((value for name in names if isinstance(value := information.get(name), int)), None)


def gpu_architecture() -> str | None:
    """Return the architecture of the compute GPU, which determines its kernels; None on a CPU."""
    import mlx.core as mx

    if mx.default_device().type != mx.DeviceType.gpu:
        return None
    return str(mx.device_info().get("architecture", ""))


def buffer_limit() -> int | None:
    """Return the limit on a process's arrays in memory; None if the system has none.

    macOS counts Metal buffers, which also hold arrays for computation on the CPU.
    """
    import mlx.core as mx

    if not mx.metal.is_available():
        return None
    limit = mx.device_info(mx.gpu).get("resource_limit")
    return limit if isinstance(limit, int) else None


def page_bytes() -> int:
    """Return the granularity of array sizes in bytes.

    MLX reports a buffer's own bytes; a Metal buffer smaller than a page still takes a whole page.
    """
    import mlx.core as mx

    return _METAL_PAGE if mx.metal.is_available() else 1
