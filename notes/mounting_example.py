"""Greenroom inside a Quart-Trio application: its API under /ai/, the application's own paths beside it."""

import sys
from functools import partial

import hypercorn.trio
import trio
from hypercorn.config import Config
from hypercorn.middleware.dispatcher import TrioDispatcherMiddleware
from quart_trio import QuartTrio

from greenroom.api import Settings, System, chat, create_app, open_system


def make_app(system: System, settings: Settings) -> TrioDispatcherMiddleware:
    own = QuartTrio(__name__)

    @own.get("/hello/<name>")
    async def hello(name: str) -> str:
        return await chat(system, f"Hello, I am {name}!", max_tokens=50)

    return TrioDispatcherMiddleware({"/ai": create_app(system, settings, prefix="/ai"), "": own})


async def serve(
    settings: Settings,
    bind: str,
    task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED,
) -> None:
    config = Config()
    config.bind = [bind]
    async with open_system(settings) as system:
        await hypercorn.trio.serve(make_app(system, settings), config, task_status=task_status)


if __name__ == "__main__":
    [address] = sys.argv[1:] or ["127.0.0.1:8000"]
    print(f"curl http://{address}/ai/v1/models     curl http://{address}/hello/Ada")
    trio.run(partial(serve, Settings(), address))
