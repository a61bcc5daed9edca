"""Meaning of SIGHUP: the terminal was closed, or an operator asks to reload the settings."""

from __future__ import annotations

import os
import signal


class Terminal:
    """The terminal at which this process was started; none if the process ignores its end, as under nohup."""

    def __init__(self) -> None:
        self._watched = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN and _has_terminal()

    @property
    def is_gone(self) -> bool:
        return self._watched and not _has_terminal()


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True
