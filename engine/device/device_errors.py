"""Errors of the compute device, which surface late, once, and in unrelated code.

Since 0.32.1, MLX keeps the message of a failed command buffer, throws it at the next launch or wait on the
same thread, and then forgets it (`mlx/error.h`). The buffer's output arrays still read as numbers. So the
cause of an exception is unknown until the streams have been waited for.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
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
    for each in _chain(error):
        if isinstance(each, DeviceError) or (type(each) is RuntimeError and is_device_message(str(each))):
            yield each


def is_device_message(text: str) -> bool:
    """Return whether a message starts like MLX's messages about the device."""
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


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception and, transitively, its causes and contexts."""
    seen = set[int]()
    pending = [error]
    while pending:
        each = pending.pop()
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            yield each
            pending += [each.__cause__, each.__context__]
