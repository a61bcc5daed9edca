"""A program around the library that compares its own state before, during and after, and prints it.

With the word `asyncio`, by the bridge. With the name of a module and its arguments, it runs that instead, and
prints which threads its end leaves.
"""

from __future__ import annotations

import asyncio
import json
import locale
import logging
import os
import resource
import runpy
import signal
import sys
import threading
import time
import warnings
from typing import Any

import trio

from greenroom.api import Settings, chat, create_app, open_system
from greenroom.asyncio_bridge import AsyncioBridge


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
        "locale": locale.setlocale(locale.LC_ALL),
        "folder": os.getcwd(),
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


async def main_by_bridge() -> None:
    loop: Any = asyncio.get_running_loop()

    def of_loop() -> dict[str, Any]:
        policy = getattr(asyncio.events, "_event_loop_policy", None)
        own = {"executor": loop._default_executor, "handler": loop.get_exception_handler(), "policy": policy}
        return {**state(), **own}

    own = of_loop()
    threads = set(threading.enumerate())

    def changed() -> list[str]:
        return changes(own, of_loop())

    files: list[int] = []
    for _ in range(2):  # what libraries keep open, they open in the first
        async with AsyncioBridge(Settings(shutdown_timeout=60.0)) as bridge:
            assert [event async for event in bridge.chat("Hello!", max_tokens=3)]
            said = changed()
        files.append(len(os.listdir("/dev/fd")))
    print(said)
    assert files[1] <= files[0], files
    print(changed() + lasting(threads))


def lasting(known: set[threading.Thread]) -> list[str]:
    """Return the names of other threads that do not end soon, but for Trio's idle workers."""
    deadline = time.monotonic() + 60
    while True:
        others = [each.name for each in threading.enumerate() if each not in known]
        left = [name for name in others if not name.startswith("Trio thread")]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.01)


if __name__ == "__main__":
    untouched = state()
    if sys.argv[2:] or sys.argv[1:] not in ([], ["asyncio"]):
        sys.argv[:] = sys.argv[1:]
        try:
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        finally:
            print(json.dumps({"left": lasting({threading.current_thread()})}), flush=True)
    elif sys.argv[1:]:
        asyncio.run(main_by_bridge())
        print(changes(untouched, state()))
    else:
        trio.run(main)
        print(changes(untouched, state()))
