"""A systemd user unit of the supervised server."""

from __future__ import annotations

import os
from pathlib import Path

from greenroom.http.supervision.supervised_program import (
    DESCRIPTION,
    OPEN_FILES,
    RESTART_SECONDS,
    SupervisedProgram,
)

_NAME = "greenroom.service"


class SystemdUnit:
    """The unit's file, and the commands that act on it."""

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

    @property
    def start_commands(self) -> tuple[tuple[str, ...], ...]:
        """Commands that start the unit, or start it again with a new file."""
        return (
            ("systemctl", "--user", "daemon-reload"),
            ("systemctl", "--user", "enable", _NAME),
            ("systemctl", "--user", "restart", "--no-block", _NAME),
        )

    @property
    def replace_commands(self) -> tuple[tuple[str, ...], ...]:
        """Commands before the start of a unit whose file was replaced: none, since a restart is enough."""
        return ()

    @property
    def stop_commands(self) -> tuple[tuple[str, ...], ...]:
        """Commands that stop the unit for good."""
        return (("systemctl", "--user", "disable", "--now", _NAME),)

    @property
    def forget_commands(self) -> tuple[tuple[str, ...], ...]:
        """Commands to run after the file is deleted."""
        return (("systemctl", "--user", "daemon-reload"),)

    @property
    def status_command(self) -> tuple[str, ...]:
        return "systemctl", "--user", "status", "--no-pager", _NAME

    def logs_command(self, lines: int, follow: bool) -> tuple[str, ...]:
        """Return the command that shows the last lines of the log, and on request those that follow."""
        more = ("--follow",) if follow else ("--no-pager",)
        return "journalctl", "--user", f"--user-unit={_NAME}", "--output=cat", f"--lines={lines}", *more

    @property
    def advice(self) -> str:
        return "It runs while you are logged in; `loginctl enable-linger` keeps it running always."


def _escaped(text: str) -> str:
    return text.replace("%", "%%")


def _quoted(text: str) -> str:
    """Return a word in quotes (systemd.syntax(7), "Quoting")."""
    inner = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{_escaped(inner)}"'
