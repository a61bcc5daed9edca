"""Commands that run a module of Greenroom on a host: here directly, elsewhere by ssh."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from greenroom.schemas.settings.hosts import Host

SSH = (
    *("ssh", "-T", "-a", "-x"),
    *("-o", "BatchMode=yes"),
    *("-o", "ConnectTimeout=10"),
    *("-o", "ServerAliveInterval=1"),
    *("-o", "ServerAliveCountMax=4"),
    *("-o", "ControlMaster=no"),
    *("-o", "ControlPath=none"),
    *("-o", "ClearAllForwardings=yes"),
)
"""ssh without questions, which ends some 5 s after its link is cut, and lends no connection, key or port of
this machine. Without a terminal, standard input is a clean pipe, whose end tells the far process that this
one is gone."""

PROBE = "greenroom.engine.ranks.probe_host"

T = TypeVar("T")


def command_on(host: Host, arguments: Sequence[str]) -> list[str]:
    """Return the command that runs a host's Python with arguments, such as `-m` and a module."""
    python = host.python or sys.executable
    # ssh would not pass on variables of this process.
    command = [*(("env", *host.envs) if host.envs else ()), python, *arguments]
    return command if host.is_here else [*SSH, "--", host.ssh, f"exec {shlex.join(command)}"]


@contextmanager
def asking(host: Host, question: Mapping[str, Any]) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process on a host that answers a question by lines of JSON, until the end of the block."""
    command = command_on(host, ["-P", "-m", PROBE, json.dumps(question)])
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    try:  # a process group of its own, so that Ctrl-C in a terminal ends it in order
        process = subprocess.Popen(command, process_group=0, **pipes)
    except OSError as error:
        raise ValueError(f"host {host.ssh}: {error.filename}: {error.strerror}") from error
    with process:
        try:
            yield process
        finally:
            process.kill()


def answer_of(host: Host, process: subprocess.Popen[bytes], seconds: float, kind: type[T]) -> T:
    """Return the last line of a process's answer, after at most `seconds`.

    Raises:
        ValueError: One sentence that names the host: ssh fails, it does not answer, or has no Greenroom.
    """
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        raise ValueError(f"host {host.ssh} did not answer in time") from None
    if process.returncode or not out.strip():
        why = _why(host, process.returncode, err.decode(errors="replace"))
        raise ValueError(f"host {host.ssh}: {why}")
    try:
        return msgspec.json.decode(out.splitlines()[-1], type=kind)
    except ValueError as error:
        raise ValueError(f"host {host.ssh} does not answer as this version does: {error}") from None


def _why(host: Host, status: int, said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    last = (lines or ["it said nothing"])[-1][:300]
    if status == 255 and not host.is_here:
        return f"ssh fails ({last}): `ssh {host.ssh} true` must work without a question"
    if "No module named" in last or status in (126, 127):
        python = host.python or sys.executable
        return f"{python} has no Greenroom there ({last}): install it, or name another Python by `python`"
    return f"its probe ended with status {status} ({last})"


def portable_path(folder: Path) -> str:
    """Return a folder's path as another machine may have it: from `~` on, if it is below the home folder."""
    home = os.path.expanduser("~")
    path = str(folder)
    return f"~{path.removeprefix(home)}" if path.startswith(f"{home}/") else path
