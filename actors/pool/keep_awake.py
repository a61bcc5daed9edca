"""Prevention of the machine's sleep while requests run, so that clients' streams are not cut."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence

import trio

from greenroom.schemas.settings.setting_groups import Wakefulness

QUIET_SECONDS = 30.0  # Seconds after the last request until the machine may sleep

_END_SECONDS = 2.0  # Seconds for the tool to end before it is killed

_REASON = "--why=Requests are being answered"


def awake_command(platform: str) -> tuple[str, ...]:
    """Return the command that keeps a machine awake while it runs, and ends with this process at the latest.

    `caffeinate` watches the process; `systemd-inhibit` runs `cat`, whose input ends with the process.

    Args:
        platform: Name as in `sys.platform`.
    """
    if platform == "darwin":
        return "caffeinate", "-i", "-w", str(os.getpid())
    return "systemd-inhibit", "--what=sleep:idle", "--who=Greenroom", _REASON, "--mode=block", "cat"


def keeps_awake(setting: Wakefulness, platform: str = sys.platform) -> bool:
    """Return whether the machine is to be kept awake; by default, only a Mac."""
    return setting == "on" or (setting == "auto" and platform == "darwin")


class KeepAwake:
    """Runs one process that keeps the machine awake, from the first request until 30 s after the last.

    A tool that is missing or fails is no error: the machine then sleeps as it would without a server.
    """

    def __init__(self, setting: Wakefulness, platform: str = sys.platform) -> None:
        self._wanted = keeps_awake(setting, platform)
        self._command = awake_command(platform)
        self._busy = False
        self._changed = trio.Event()

    def set_busy(self, busy: bool) -> None:
        """Set whether any request runs; never blocks."""
        if busy != self._busy:
            self._busy = busy
            self._changed.set()
            self._changed = trio.Event()

    async def run(self) -> None:
        """Start and end the process as requests come and go, until cancelled; return if it is not wanted."""
        while self._wanted:
            while not self._busy:
                await self._changed.wait()
            process = await _start(self._command)
            try:
                await self._wait_until_quiet()
            finally:
                if process is not None:
                    await _end(process)

    async def _wait_until_quiet(self) -> None:
        while True:
            while self._busy:
                await self._changed.wait()
            with trio.move_on_after(QUIET_SECONDS) as quiet:
                await self._changed.wait()  # a short request may have ended again, which begins anew
            if quiet.cancelled_caught and not self._busy:
                return


async def _start(command: Sequence[str]) -> trio.Process | None:
    if shutil.which(command[0]) is None:
        return None
    null = subprocess.DEVNULL
    try:
        return await trio.lowlevel.open_process(command, stdin=subprocess.PIPE, stdout=null, stderr=null)
    except OSError:
        return None


async def _end(process: trio.Process) -> None:
    with trio.CancelScope(shield=True):
        if process.stdin is not None:
            await process.stdin.aclose()
        process.terminate()
        with trio.move_on_after(_END_SECONDS):
            await process.wait()
            return
        process.kill()
        await process.wait()
