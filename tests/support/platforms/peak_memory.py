"""Peak memory of this process."""

from __future__ import annotations

import resource
import sys


def peak_bytes() -> int:
    """Return the largest resident size of this process so far, in bytes; systems report different units."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
