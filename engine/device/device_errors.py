"""Errors of the device that computes: they come late, once, and to whoever happens to launch something next.

Since 0.32.1 MLX keeps the message of a command buffer that failed, and throws it from the next launch or
wait of the same thread, whoever's that is; then it forgets it (`mlx/error.h`). The arrays that the buffer
should have written read as numbers. So an exception tells nothing of who is to blame for it before the
streams have been waited for.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_BEGINNINGS = re.compile(
    r"\[METAL\]"  # a command buffer failed: mlx/backend/metal/device.cpp
    r"|\[metal::(?:malloc|CommandEncoder)\]"
    r"|\[malloc\]"
    r"|\[(?:Event|Fence)\b"
    r"|\[read\]"  # of a file, on a stream of the CPU: mlx/io/load.cpp
    r"|\[cuda|CUDA"
    r"|cu(?:da|blas|dnn|fft|[A-Z])\w*\("  # the call that failed, as `CHECK_CUDA_ERROR` names it
)

_WITH_STREAMS = ("mlx_audio.lm.generate",)
"""Modules of libraries that compute on a `generation_stream` of their own: it keeps errors apart."""


class DeviceError(RuntimeError):
    """Something that was launched before has failed; what, nobody knows."""


def is_device_error(error: BaseException | None) -> bool:
    """Return whether an exception is the device's, or was raised because of one that is.

    MLX's are plain RuntimeErrors that begin with where they come from; no client writes the beginning of one.
    """
    return any(True for _ in device_errors_in(error))


def device_errors_in(error: BaseException | None) -> Iterator[RuntimeError]:
    """Yield the device's errors among an exception and those while handling which it was raised."""
    for each in _chain(error):
        if isinstance(each, DeviceError) or (type(each) is RuntimeError and is_device_message(str(each))):
            yield each


def is_device_message(text: str) -> bool:
    """Return whether a message begins as those of MLX do that name the device."""
    return _BEGINNINGS.match(text) is not None


def synchronize_streams() -> None:
    """Wait for everything that this thread has launched, on the CPU and on the GPU.

    `mx.synchronize` alone looks at the default stream. Errors of reading files stay in the CPU's, and those
    of many a model that speaks or listens in its library's.

    Raises:
        DeviceError: Something of it has failed.
    """
    import mlx.core as mx

    for stream in _streams():
        with _naming_the_device():
            mx.synchronize(stream)


def check_device(*, idle: bool) -> None:
    """Make sure that what this thread has launched and waited for is right; numbers alone do not tell.

    An array that is complete is read without a look at what became of its buffer (`array::wait`), so a value
    is good only if nothing is raised here after it was read.

    Args:
        idle: Nothing is under way that somebody waits for, so that all of it may be waited for here. Else
            something tiny is launched, since MLX throws what it keeps from the next launch.

    Raises:
        DeviceError: Something has failed.
    """
    import mlx.core as mx

    if idle:
        synchronize_streams()
    else:
        with _naming_the_device():
            mx.async_eval(mx.array(0) + 1)


def raise_unless_own(error: BaseException) -> None:
    """Return if nothing but what has just raised this can be to blame for it; ask before anybody is blamed.

    Raises:
        BaseException: That error if it is the device's, or the device's that was still to come: nobody knows
            what it spoiled, so nothing that this thread has computed since it last waited can be used.
    """
    if is_device_error(error):
        raise error
    synchronize_streams()


def _streams() -> Iterator[Any]:
    """Yield the streams on which this thread may have launched something."""
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
    """Turn whatever comes of waiting into the device's error: nothing else can go wrong with that."""
    try:
        yield
    except RuntimeError as error:
        raise DeviceError(str(error)) from error


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception, and those while handling which it was raised."""
    seen = set[int]()
    pending = [error]
    while pending:
        each = pending.pop()
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            yield each
            pending += [each.__cause__, each.__context__]
