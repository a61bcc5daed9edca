"""Stands for a system that refuses to limit the address space, as macOS does: runs a decoder under it."""

from __future__ import annotations

import resource
import runpy
import sys
from pathlib import Path

LAUNCHER = Path(__file__).resolve().parents[3] / "engine" / "media" / "processes" / "limited_process.py"


def main() -> None:
    """Run the launcher of decoders with a `setrlimit` that refuses."""
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
