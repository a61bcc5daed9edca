"""Errors of the device that computes: they come late, once, and to whoever happens to launch something next.

Since 0.32.1 MLX keeps the message of a command buffer that failed, and throws it from the next launch or
wait of the same thread, whoever's that is; then it forgets it (`mlx/error.h`). The arrays that the buffer
should have written read as numbers. So an exception tells nothing of who is to blame for it before the
streams have been waited for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_BEGINNINGS = re.compile(
    r"\[METAL\]"  # a command buffer failed: mlx/backend/metal/device.cpp
    r"|\[metal::(?:malloc|CommandEncoder)\]"
    r"|\[malloc\]"
    r"|\[(?:Event|Fence)\b"
    r"|\[read\]"  # of a file, on a stream of the CPU: mlx/io/load.cpp
    r"|\[cuda|CUDA"
    r"|cu(?:da|blas|dnn|fft|[A-Z])\w*\("  # the call that failed, as `CHECK_CUDA_ERROR` names it
)


def is_device_error(error: BaseException | None) -> bool:
    """Return whether an exception is the device's, or was raised because of one that is.

    MLX's are plain RuntimeErrors that begin with where they come from; no client writes the beginning of one.
    """
    return any(
        type(each) is RuntimeError and _BEGINNINGS.match(str(each)) is not None for each in _chain(error)
    )


def synchronize_streams() -> None:
    """Wait for everything that this thread has launched, on the CPU and on the GPU.

    `mx.synchronize` alone looks at the default stream, and errors of reading files stay in the CPU's.

    Raises:
        RuntimeError: Something of it has failed, whoever's it is.
    """
    import mlx.core as mx

    for device in (mx.cpu, mx.gpu):
        if mx.is_available(device):
            mx.synchronize(mx.default_stream(device))


def raise_unless_own(error: Exception) -> None:
    """Return if nothing but what has just raised this can be to blame for it; to be asked before anybody is.

    Raises:
        Exception: That error if it is the device's, or the device's that was still to come: nobody knows what
            it spoiled, so nothing that this thread has computed since it last waited can be used.
    """
    if is_device_error(error):
        raise error
    synchronize_streams()


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
