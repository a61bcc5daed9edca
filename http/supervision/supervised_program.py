"""The supervised server as a program that the system starts for a user."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import attrs

from greenroom.http.process.program_name import NAME
from greenroom.http.settings.sources import KEY_VARIABLE, SERVER_KEY_VARIABLE
from greenroom.http.supervision.supervisor import STOP_RESERVE

DESCRIPTION = "Greenroom, an inference server for MLX models"
RESTART_SECONDS = 30
"""Seconds before the system starts a supervising parent again that has failed."""
OPEN_FILES = 4096
"""Wanted limit of open files: connections and sharded weights."""

_SYSTEM_RESERVE = 5
"""Seconds beyond the parent's own time limit after which the system kills it."""
_VARIABLES = ("HF_HOME", "HF_HUB_CACHE", "HF_ENDPOINT", "HF_HUB_OFFLINE")
SECRET_VARIABLES = (KEY_VARIABLE, SERVER_KEY_VARIABLE)
_USER_FOLDERS = ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME")


@attrs.frozen
class SupervisedProgram:
    """A supervised server that the system starts.

    Args:
        command: Program with its arguments.
        folder: Folder in which it runs, since arguments may be relative paths.
        variables: Environment variables.
        stop_seconds: Time limit of a shutdown, in whole seconds.
    """

    command: tuple[str, ...]
    folder: Path
    variables: tuple[tuple[str, str], ...]
    stop_seconds: int


def supervised_program(arguments: Sequence[str], shutdown_timeout: float) -> SupervisedProgram:
    """Return the program of this installation, in this folder and with this environment's settings.

    Keys and tokens are left out: a file for the system is no place for secrets, the server can read its key
    from a file (`api_key_file`), and the hub's library keeps its own token.

    Args:
        arguments: Arguments of `greenroom serve`.
        shutdown_timeout: The server's own time limit of a shutdown, in seconds.
    """
    command = (*_program(), "serve", "--supervised", *arguments)
    variables = {
        name: value
        for name, value in sorted(os.environ.items())
        if (name.startswith("GREENROOM_") and name not in SECRET_VARIABLES)
        or name in (*_VARIABLES, *_USER_FOLDERS)
    }
    stop_seconds = int(shutdown_timeout + STOP_RESERVE + _SYSTEM_RESERVE)
    return SupervisedProgram(command, Path.cwd(), tuple(variables.items()), stop_seconds)


def _program() -> tuple[str, ...]:
    """Return the path of the installed script, which stays valid when a new version is installed."""
    started = Path(sys.argv[0])
    if started.name == NAME and started.is_file():
        return (str(started.absolute()),)
    return sys.executable, "-P", "-m", "greenroom.http.command_line"
