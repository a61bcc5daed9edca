"""The process's limit on open files and sockets."""

from __future__ import annotations

import resource
import sys

_MACOS_OPEN_MAX = 10_240
"""Largest soft limit of macOS, even if the hard limit is infinite (`OPEN_MAX` in its `setrlimit(2)`)."""


def raise_descriptor_limit(wanted: int) -> int:
    """Raise the soft limit to `wanted`, or as far as the hard limit allows; never lower it.

    It goes no further, since libraries that use `select(2)` cannot handle descriptors from 1,024 up.

    Returns:
        The resulting soft limit.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return wanted
    allowed = _MACOS_OPEN_MAX if sys.platform == "darwin" else wanted
    if hard != resource.RLIM_INFINITY:
        allowed = min(allowed, hard)
    target = min(wanted, allowed)
    if target > soft:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
        except (OSError, ValueError):
            # The kernel has a lower limit: continue with the present one.
            return soft
        return target
    return soft
