"""The number of files and sockets that this process may have open at once."""

from __future__ import annotations

import resource
import sys

_MACOS_OPEN_MAX = 10_240
"""What macOS takes at most where its hard limit says infinity (`OPEN_MAX` of its `setrlimit(2)`)."""


def raise_descriptor_limit(wanted: int) -> int:
    """Raise the soft limit to so many, or as far as the hard limit lets it; never lower it.

    No further than wanted: libraries that use `select(2)` cannot see descriptors from 1,024 up.

    Returns:
        The soft limit that holds now.
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
            # A kernel with a lower bound of its own; what is there must do.
            return soft
        return target
    return soft
