"""Commands that run a module of Greenroom on a host: here directly, elsewhere by ssh."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from greenroom.schemas.settings.hosts import Host

SSH = (
    "ssh",
    *("-T", "-a", "-x"),
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


def command_on(
    host: Host, arguments: Sequence[str], environment: Mapping[str, str] | None = None
) -> list[str]:
    """Return the command that runs a host's Python with arguments, such as `-m` and a module.

    Args:
        environment: Further variables of the process; ssh would not pass on those of this one.
    """
    variables = dict(entry.split("=", 1) for entry in host.envs) | dict(environment or {})
    python = host.python or sys.executable
    settings = [f"{name}={value}" for name, value in variables.items()]
    command = ["env", *settings, python, *arguments] if settings else [python, *arguments]
    if host.is_here:
        return command
    return [*SSH, "--", host.ssh, f"exec {shlex.join(command)}"]


def start_question(host: Host, question: Mapping[str, Any]) -> subprocess.Popen[bytes]:
    """Start a process on a host that answers a question by lines of JSON; whoever starts it ends it."""
    try:
        process = subprocess.Popen(
            command_on(host, ["-P", "-m", PROBE, json.dumps(question)]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            process_group=0,  # so that Ctrl-C in a terminal ends them in order
        )
    except OSError as error:
        raise ValueError(f"host {host.ssh}: {error.filename}: {error.strerror}") from error
    return process


def finish_question(host: Host, process: subprocess.Popen[bytes], seconds: float) -> dict[str, Any]:
    """Return the last line of a process's answer, after at most `seconds`; it is then gone.

    Raises:
        ValueError: One sentence that names the host: ssh fails, it does not answer, or has no Greenroom.
    """
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        raise ValueError(f"host {host.ssh} did not answer in time") from None
    finally:
        end_question(process)
    lines = out.decode(errors="replace").splitlines()
    try:
        answer = json.loads(lines[-1])
    except (IndexError, ValueError):
        raise ValueError(
            f"host {host.ssh}: {_why(host, process.returncode, err.decode(errors='replace'))}"
        ) from None
    return checked_answer(host, answer)


def checked_answer(host: Host, answer: Any) -> dict[str, Any]:
    """Return an answer. Raises ValueError: it tells an error."""
    if not isinstance(answer, dict) or "error" in answer:
        told = answer["error"] if isinstance(answer, dict) else answer
        raise ValueError(f"host {host.ssh}: {str(told)[:300]}")
    return answer


def end_question(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


def _why(host: Host, status: int, said: str) -> str:
    last = next((line.strip() for line in reversed(said.splitlines()) if line.strip()), "it said nothing")[
        :300
    ]
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
