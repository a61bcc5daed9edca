"""Run the decoder process on a system that cannot limit the address space, as on macOS."""

from __future__ import annotations

import resource
import runpy
import sys
from pathlib import Path

LAUNCHER = Path(__file__).resolve().parents[3] / "engine" / "media" / "limited_process.py"


def main() -> None:
    """Run the decoders' launcher with a `setrlimit` that fails."""
    accept = resource.setrlimit

    def refuse(kind: int, limits: tuple[int, int], /) -> None:
        if kind == resource.RLIMIT_AS:
            raise ValueError("current limit exceeds maximum limit")
        accept(kind, limits)

    resource.setrlimit = refuse
    sys.argv[0] = str(LAUNCHER)
    runpy.run_path(str(LAUNCHER), run_name="__main__")


if __name__ == "__main__":
    main()
