"""Ollama's official client against our server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import ollama
import trio

from greenroom.tests.support.servers.http_servers import Served

T = TypeVar("T")


async def ask(served: Served, call: Callable[[Any], T]) -> T:
    """Call the synchronous client in a thread; its result is untyped because every field may be None."""

    def on_thread() -> T:
        with ollama.Client(host=served.base_url.removesuffix("/v1")) as client:
            return call(client)

    with trio.fail_after(300):
        return await trio.to_thread.run_sync(on_thread)
