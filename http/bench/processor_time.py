"""How much processor time another process of this machine has used."""

from __future__ import annotations

import subprocess
from pathlib import Path


def processor_time(pid: int) -> float:
    """Return the seconds of processor time of all living threads of a process.

    Linux counts nanoseconds for each thread; elsewhere `ps` shows hundredths of a second.
    """
    threads = list(Path(f"/proc/{pid}/task").glob("*/schedstat"))
    if threads:
        return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9
    shown = subprocess.run(["ps", "-o", "time=", "-p", str(pid)], capture_output=True, text=True, check=True)
    seconds = 0.0
    for part in shown.stdout.strip().replace("-", ":").split(":"):
        seconds = seconds * 60 + float(part)
    return seconds
