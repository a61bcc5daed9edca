"""Reports of runs on a device, in Markdown."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import time
from collections.abc import Callable, Sequence
from importlib.metadata import distributions
from pathlib import Path

import attrs

from greenroom.engine.loading.libraries import prefer_openblas
from greenroom.tests.bench.figures import describe_environment
from greenroom.tests.on_device.plans import Plan

_SOURCE = Path(__file__).resolve().parents[2] / ".src"
_LAST_LINES = 40
"""Number of a failed part's last stderr lines in the report."""


@attrs.frozen
class Ending:
    """The result of one part of a run.

    Args:
        output: Standard output: Markdown or text.
        told: Standard error.
    """

    name: str
    command: Sequence[str]
    status: int
    seconds: float
    output: str
    told: str

    def section(self) -> str:
        """Return the part's section of the report."""
        result = "passed" if self.status == 0 else f"**failed**, exit status {self.status}"
        command = shlex.join(self.command[1:])
        lines = [f"## {self.name}: {result}", "", f"`{command}`, {self.seconds:.0f} s", ""]
        table = self.output.strip()
        lines += [table] if "|---" in table else ["```", table, "```"]
        if self.status and (told := self.told.strip().splitlines()):
            lines += ["", "```", *told[-_LAST_LINES:], "```"]
        return "\n".join(lines) + "\n"


def write_report(plan: Plan, file: Path, say: Callable[[str], object]) -> list[str]:
    """Run all parts and write the report after each; return the names of failed parts.

    Args:
        say: Callback for a line of progress as each part begins.
    """
    failed = []
    file.write_text(_heading())
    for name, command in plan.parts().items():
        say(f"{name} ...")
        ending = _run(name, command)
        if ending.status:
            failed.append(name)
        with file.open("a") as report:
            report.write("\n" + ending.section())
    summary = f"Failed: {', '.join(failed)}." if failed else "Nothing failed."
    with file.open("a") as report:
        report.write(f"\n## In short\n\n{summary}\n")
    return failed


def _run(name: str, command: Sequence[str]) -> Ending:
    environment = {**os.environ, "PYTHONPATH": str(_SOURCE), "COLUMNS": "160"}
    began = time.monotonic()
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    return Ending(name, command, done.returncode, time.monotonic() - began, done.stdout, done.stderr)


def _heading() -> str:
    """Return the head of a report: machine, device and versions."""
    with_openblas = prefer_openblas()  # before MLX, as a server does
    import mlx.core as mx

    facts = describe_environment()
    device = mx.default_device()
    cpu = f"none: all of this is the CPU's, with{'' if with_openblas else 'out'} OpenBLAS"
    rows = {
        "date": facts["date"],
        "machine": facts["machine"],
        "system": " ".join(filter(None, (platform.system(), platform.mac_ver()[0] or platform.release()))),
        "Python": facts["python"],
        "commit": _commit(),
        "device": device.type.name,
        **({"GPU": cpu} if device.type == mx.DeviceType.cpu else {}),
        **{f"device: {name}": value for name, value in sorted(mx.device_info(device).items())},
        **_versions(),
    }
    lines = ["# Greenroom on a device", "", "| | |", "|---|---|"]
    return "\n".join([*lines, *(f"| {name} | {value} |" for name, value in rows.items())]) + "\n"


def _commit() -> str:
    """Return the commit of this checkout, with a mark if files were changed since."""
    command = ("git", "describe", "--always", "--dirty", "--abbrev=12")
    try:
        return subprocess.run(
            command, cwd=_SOURCE.parent, capture_output=True, text=True, check=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "no checkout"


def _versions() -> dict[str, str]:
    """Return the versions of the libraries that compute."""
    names = {each.metadata["Name"].lower(): each.version for each in distributions()}
    return {name: names[name] for name in sorted(names) if name.startswith(("mlx", "greenroom"))}
