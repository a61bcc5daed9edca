"""OpenAI's official client against a server of ours."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import openai
import trio

from greenroom.tests.support.http_servers import Served

T = TypeVar("T")
Call = Callable[[openai.OpenAI], T]


async def ask(served: Served, call: Call[T], retries: int = 0) -> T:
    """Let the synchronous client do something on a thread of its own."""
    [answer] = await ask_together(served, call, retries=retries)
    return answer


async def ask_together(served: Served, *calls: Call[T], retries: int = 0) -> list[T]:
    """Let it do several things at the same time."""

    def on_thread() -> list[T]:
        with (
            openai.OpenAI(base_url=served.base_url, api_key="any", max_retries=retries) as client,
            ThreadPoolExecutor(len(calls)) as threads,
        ):
            return list(threads.map(lambda call: call(client), calls))

    with trio.fail_after(300):
        return await trio.to_thread.run_sync(on_thread)


def streamed_text(chunks: list[Any], index: int = 0) -> str:
    """Return the text of a choice of a streamed chat."""
    return "".join(
        choice.delta.content or "" for chunk in chunks for choice in chunk.choices if choice.index == index
    )
