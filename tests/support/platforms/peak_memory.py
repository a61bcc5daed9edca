"""Memory that this process has had at most."""

from __future__ import annotations

import resource
import sys


def peak_bytes() -> int:
    """Return the largest size of this process so far; systems tell it in units of their own."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
