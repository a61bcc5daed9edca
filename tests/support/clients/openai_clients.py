"""OpenAI's official client against our server."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import openai
import trio

from greenroom.tests.support.servers.http_servers import Served

T = TypeVar("T")
Call = Callable[[openai.OpenAI], T]

CHAT = "/v1/chat/completions"
USER = {"role": "user", "content": "Tell me about the sea"}


async def ask(served: Served, call: Call[T], retries: int = 0) -> T:
    """Call the synchronous client in a thread."""
    [answer] = await ask_together(served, call, retries=retries)
    return answer


async def ask_together(served: Served, *calls: Call[T], retries: int = 0) -> list[T]:
    """Make several calls concurrently, each in a thread."""

    def on_thread() -> list[T]:
        with (
            openai.OpenAI(base_url=served.base_url, api_key="any", max_retries=retries) as client,
            ThreadPoolExecutor(len(calls)) as threads,
        ):
            return list(threads.map(lambda call: call(client), calls))

    with trio.fail_after(300):
        return await trio.to_thread.run_sync(on_thread)


def streamed_text(chunks: list[Any], index: int = 0) -> str:
    """Return the text of one choice of a streamed chat completion."""
    return "".join(
        choice.delta.content or "" for chunk in chunks for choice in chunk.choices if choice.index == index
    )


def body(**fields: Any) -> dict[str, Any]:
    """Return the JSON of a greedy request for a few tokens."""
    return {"model": "qwen3", "messages": [USER], "temperature": 0, "max_tokens": 12, **fields}


async def stream_of(served: Served, **fields: Any) -> list[Any]:
    """Return all chunks of a streamed chat completion."""
    return await ask(
        served, lambda client: list(client.chat.completions.create(**body(stream=True, **fields)))
    )
