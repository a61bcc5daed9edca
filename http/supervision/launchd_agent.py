"""A launchd agent of the supervised server."""

from __future__ import annotations

import os
import plistlib
from pathlib import Path

from greenroom.http.supervision.supervised_program import OPEN_FILES, RESTART_SECONDS, SupervisedProgram

_LABEL = "greenroom"


class LaunchdAgent:
    """The agent's file, and the commands that act on it."""

    @property
    def path(self) -> Path:
        """Path of the agent's file (launchd.plist(5))."""
        return Path("~/Library/LaunchAgents", f"{_LABEL}.plist").expanduser()

    @property
    def log(self) -> Path:
        return Path("~/Library/Logs", f"{_LABEL}.log").expanduser()

    def content(self, program: SupervisedProgram) -> bytes:
        """Return the content of the file."""
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
    def start_commands(self) -> tuple[tuple[str, ...], ...]:
        return (("launchctl", "bootstrap", self._domain, str(self.path)),)

    @property
    def replace_commands(self) -> tuple[tuple[str, ...], ...]:
        """Commands before the start of an agent whose file was replaced."""
        return self.stop_commands

    @property
    def stop_commands(self) -> tuple[tuple[str, ...], ...]:
        """Commands that stop the agent for good."""
        return (("launchctl", "bootout", f"{self._domain}/{_LABEL}"),)

    @property
    def forget_commands(self) -> tuple[tuple[str, ...], ...]:
        """Commands to run after the file is deleted: none."""
        return ()

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
