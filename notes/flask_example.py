"""Greenroom inside a Flask application: views on threads, the bridge on the loop of the main thread."""

import asyncio
import sys
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

from flask import Flask, Response
from werkzeug.serving import make_server

from greenroom.api import Failed, InferenceEvent, ProblemError, Settings, TextDelta
from greenroom.asyncio_bridge import AsyncioBridge, BridgedEvents

T = TypeVar("T")
app = Flask(__name__)
bridge = AsyncioBridge(Settings())
loop = asyncio.new_event_loop()


def on_loop(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run_coroutine_threadsafe(work, loop).result()


async def begin(question: str) -> BridgedEvents:
    return bridge.chat(question, max_tokens=50)


async def next_of(events: BridgedEvents) -> InferenceEvent | None:
    return await anext(events, None)


@app.get("/hello/<name>")
def hello(name: str) -> Response:
    def words() -> Iterator[str]:
        events = on_loop(begin(f"Hello, I am {name}!"))
        try:
            while event := on_loop(next_of(events)):
                match event:
                    case TextDelta(text):
                        yield text
                    case Failed(problem):
                        raise ProblemError(problem)  # the answer is cut off
        finally:
            events.close()  # the client may have left

    return Response(words(), mimetype="text/plain")


async def main(port: int) -> None:
    server = make_server("127.0.0.1", port, app, threaded=True)
    async with bridge:
        print(f"curl http://127.0.0.1:{server.port}/hello/Ada", flush=True)
        try:
            await asyncio.to_thread(server.serve_forever)
        finally:
            server.shutdown()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(main(int(sys.argv[1]) if sys.argv[1:] else 8000))
