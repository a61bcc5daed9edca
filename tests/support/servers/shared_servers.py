"""Servers in threads of their own, which the tests of a file share where none changes what others see."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager

import trio

from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.servers.http_servers import Served, serving

Shared = Callable[[Settings], Served]
"""Function that returns the running server of some settings."""


@contextmanager
def sharing() -> Iterator[Shared]:
    """Yield a function that returns one server for equal settings; all of them end with the block."""
    running: list[tuple[Settings, Served]] = []
    with ExitStack() as servers:

        def served(settings: Settings) -> Served:
            for known, server in running:
                if known == settings:
                    return server
            running.append((settings, servers.enter_context(_serving_in_a_thread(settings))))
            return running[-1][1]

        yield served


@contextmanager
def _serving_in_a_thread(settings: Settings) -> Iterator[Served]:
    begun, done = Future[tuple[Served, trio.Event, trio.lowlevel.TrioToken]](), Future[None]()

    async def serve() -> None:
        async with serving(settings) as served:
            end = trio.Event()
            begun.set_result((served, end, trio.lowlevel.current_trio_token()))
            await end.wait()

    def run() -> None:
        try:
            trio.run(serve)
            done.set_result(None)
        except BaseException as error:
            done.set_exception(error)
            if not begun.done():
                begun.set_exception(error)

    thread = threading.Thread(target=run, name="shared server")
    thread.start()
    try:
        served, end, token = begun.result(300)
        yield served
        trio.from_thread.run_sync(end.set, trio_token=token)
        done.result(300)
    finally:
        thread.join(300)
