"""Services of the system that run the supervised server: launchd's agent and systemd's unit."""

from __future__ import annotations

import os
import plistlib
import sys
from collections.abc import Sequence
from pathlib import Path

import attrs

from greenroom.http.process.exit_status import NAME
from greenroom.http.settings.sources import KEY_VARIABLE, SERVER_KEY_VARIABLE
from greenroom.http.supervision.supervisor import STOP_RESERVE

_LABEL = "greenroom"
_Commands = tuple[tuple[str, ...], ...]


class LaunchdAgent:
    """The agent's file, and the commands that act on it.

    Attributes:
        forget_commands: Commands to run after the file is deleted.
    """

    forget_commands: _Commands = ()

    @property
    def path(self) -> Path:
        return Path("~/Library/LaunchAgents", f"{_LABEL}.plist").expanduser()

    @property
    def log(self) -> Path:
        return Path("~/Library/Logs", f"{_LABEL}.log").expanduser()

    def content(self, program: SupervisedProgram) -> bytes:
        return plistlib.dumps(
            {
                "Label": _LABEL,
                "ProgramArguments": list(program.command),
                "WorkingDirectory": str(program.folder),
                "EnvironmentVariables": dict(program.variables),
                "RunAtLoad": True,
                "KeepAlive": {"SuccessfulExit": False},
                "ThrottleInterval": RESTART_SECONDS,
                "ExitTimeOut": program.stop_seconds,
                # launchd slows other processes down.
                "ProcessType": "Interactive",
                "SoftResourceLimits": {"NumberOfFiles": OPEN_FILES},
                "StandardErrorPath": str(self.log),
            },
            sort_keys=False,
        )

    @property
    def start_commands(self) -> _Commands:
        return (("launchctl", "bootstrap", self._domain, str(self.path)),)

    @property
    def replace_commands(self) -> _Commands:
        """Commands before the start of an agent whose file was replaced."""
        return self.stop_commands

    @property
    def stop_commands(self) -> _Commands:
        """Commands that stop the agent for good."""
        return (("launchctl", "bootout", f"{self._domain}/{_LABEL}"),)

    @property
    def status_command(self) -> tuple[str, ...]:
        return "launchctl", "print", f"{self._domain}/{_LABEL}"

    def logs_command(self, lines: int, follow: bool) -> tuple[str, ...]:
        """Return the command that shows the last lines of the log, and on request those that follow."""
        return "tail", "-n", str(lines), *(("-F",) if follow else ()), str(self.log)

    @property
    def advice(self) -> str:
        return f"It runs while you are logged in; its log is {self.log}."

    @property
    def _domain(self) -> str:
        return f"gui/{os.getuid()}"


_NAME = "greenroom.service"


class SystemdUnit:
    """The unit's file, and the commands that act on it, as `LaunchdAgent` has them."""

    start_commands: _Commands = (
        ("systemctl", "--user", "daemon-reload"),
        ("systemctl", "--user", "enable", _NAME),
        ("systemctl", "--user", "restart", "--no-block", _NAME),
    )
    replace_commands: _Commands = ()  # a restart is enough
    stop_commands: _Commands = (("systemctl", "--user", "disable", "--now", _NAME),)
    forget_commands: _Commands = (("systemctl", "--user", "daemon-reload"),)
    status_command = ("systemctl", "--user", "status", "--no-pager", _NAME)
    advice = "It runs while you are logged in; `loginctl enable-linger` keeps it running always."

    @property
    def path(self) -> Path:
        """Path of the unit's file (systemd.unit(5), "User Unit Search Path")."""
        base = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
        return Path(base, "systemd", "user", _NAME).expanduser()

    def content(self, program: SupervisedProgram) -> bytes:
        """Return the content of the file (systemd.service(5))."""
        lines = [
            "[Unit]",
            f"Description={DESCRIPTION}",
            "",
            "[Service]",
            "Type=notify",
            f"ExecStart={' '.join(_quoted(word).replace('$', '$$') for word in program.command)}",
            "ExecReload=/bin/kill -HUP $MAINPID",
            f"WorkingDirectory={_escaped(str(program.folder))}",
            *(f"Environment={_quoted(f'{name}={value}')}" for name, value in program.variables),
            "Restart=on-failure",
            # A wrong setting, or an address that is taken, stays so until somebody has a look.
            "RestartPreventExitStatus=1 2",
            "SuccessExitStatus=130 143",
            f"RestartSec={RESTART_SECONDS}",
            # Models may be downloaded before the server is ready.
            "TimeoutStartSec=infinity",
            f"TimeoutStopSec={program.stop_seconds}",
            "WatchdogSec=60",
            "KillMode=mixed",
            f"LimitNOFILE={OPEN_FILES}",
            "",
            "[Install]",
            "WantedBy=default.target",
        ]
        return "\n".join([*lines, ""]).encode()

    def logs_command(self, lines: int, follow: bool) -> tuple[str, ...]:
        """Return the command that shows the last lines of the log, and on request those that follow."""
        more = ("--follow",) if follow else ("--no-pager",)
        return "journalctl", "--user", f"--user-unit={_NAME}", "--output=cat", f"--lines={lines}", *more


def _escaped(text: str) -> str:
    return text.replace("%", "%%")


def _quoted(text: str) -> str:
    inner = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{_escaped(inner)}"'


DESCRIPTION = "Greenroom, an inference server for MLX models"
RESTART_SECONDS = 30  # Seconds before the system starts a supervising parent again that has failed
OPEN_FILES = 4096  # Wanted limit of open files: connections and sharded weights

_SYSTEM_RESERVE = 5  # Seconds beyond the parent's own time limit after which the system kills it
_VARIABLES = ("HF_HOME", "HF_HUB_CACHE", "HF_ENDPOINT", "HF_HUB_OFFLINE")
SECRET_VARIABLES = (KEY_VARIABLE, SERVER_KEY_VARIABLE)
_USER_FOLDERS = ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME")


@attrs.frozen
class SupervisedProgram:
    """A supervised server that the system starts. `folder`: folder in which it runs, since arguments may be
    relative paths; `stop_seconds`: time limit of a shutdown, in whole seconds.
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
