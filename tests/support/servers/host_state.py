"""A program around the library that compares its own state before, during and after, and prints it."""

from __future__ import annotations

import logging
import os
import resource
import signal
import sys
import threading
import warnings
from typing import Any

import trio

from greenroom.api import Settings, chat, create_app, open_system


def state() -> dict[str, Any]:
    """Return the state that all parts of a process share; loggers of libraries are the libraries' own."""
    numbers = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
    root = logging.getLogger()
    return {
        "signals": {number: signal.getsignal(number) for number in numbers},
        "switch interval": sys.getswitchinterval(),
        "descriptors": resource.getrlimit(resource.RLIMIT_NOFILE),
        "environment": dict(os.environ),
        "warnings": (list(warnings.filters), warnings.showwarning),
        "hooks": (sys.excepthook, threading.excepthook, sys.unraisablehook),
        "logging": (root.level, list(root.handlers), root.manager.disable, logging.getLogRecordFactory()),
        "loggers": {name: logging.getLogger(name).level for name in ("mcp", "quart", "hypercorn", "asyncio")},
        "streams": (sys.stdout, sys.stderr),
    }


def changes(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Return the names of what differs."""
    return [name for name in before if after[name] != before[name]]


async def main() -> None:
    own = state()
    settings = Settings(shutdown_timeout=60.0)
    async with open_system(settings) as system:
        app = create_app(system, settings, prefix="/llm")
        assert (await app.test_client().get("/llm/v1/models")).status_code == 200
        await chat(system, "Hello!", max_tokens=3)
        print(changes(own, state()))
    print(changes(own, state()))


if __name__ == "__main__":
    untouched = state()
    trio.run(main)
    print(changes(untouched, state()))
