"""Fair reading of request bodies that arrive concurrently."""

from __future__ import annotations

from typing import Any, cast

import trio
from hypercorn.typing import ASGIReceiveEvent, ASGISendEvent, HTTPScope
from quart import request
from quart_trio import QuartTrio

from greenroom.http.transport.request_connection import TURN_BYTES, RequestConnection

UPLOADS = 10
PARTS = 5


class Rounds(trio.abc.Instrument):
    """An instrument that counts the iterations of the event loop."""

    def __init__(self) -> None:
        self.count = 0

    def after_io_wait(self, timeout: float) -> None:
        self.count += 1


async def upload(app: QuartTrio, name: str, size: int) -> None:
    scope: dict[str, Any] = {
        "type": "http",
        "method": "POST",
        "path": f"/{name}",
        "query_string": b"",
        "scheme": "http",
        "headers": [(b"host", b"localhost")],
        "http_version": "1.1",
        "root_path": "",
        "extensions": {},
        "state": {},
    }
    parts = [b"x" * size] * PARTS + [b""]

    async def receive() -> ASGIReceiveEvent:
        await trio.lowlevel.checkpoint()
        if not parts:
            await trio.sleep_forever()
        body = parts.pop(0)
        return {"type": "http.request", "body": body, "more_body": bool(parts)}

    async def send(_: ASGISendEvent) -> None:
        await trio.lowlevel.checkpoint()

    await RequestConnection(app, cast("HTTPScope", scope))(receive, send)


async def rounds_of_parts(size: int) -> dict[str, list[int]]:
    """Return the event loop iterations in which each body's parts reached their routes."""
    app, rounds = QuartTrio(__name__), Rounds()
    reached: dict[str, list[int]] = {}

    @app.post("/<name>")
    async def read(name: str) -> str:
        async for part in request.body:
            if part:  # Quart 0.23 marks the end by an empty part
                reached.setdefault(name, []).append(rounds.count)
        return ""

    trio.lowlevel.add_instrument(rounds)
    async with trio.open_nursery() as nursery:
        for i in range(UPLOADS):
            nursery.start_soon(upload, app, str(i), size)
    trio.lowlevel.remove_instrument(rounds)
    return reached


async def test_one_large_body_goes_on_in_a_round_of_the_event_loop_and_each_in_its_turn() -> None:
    reached = await rounds_of_parts(TURN_BYTES)
    assert [len(parts) for parts in reached.values()] == [PARTS] * UPLOADS
    every = sorted(moment for parts in reached.values() for moment in parts)
    assert len(set(every)) == len(every)
    lasts = [parts[-1] for parts in reached.values()]
    assert min(lasts) > max(parts[0] for parts in reached.values())


async def test_small_bodies_wait_for_no_turn() -> None:
    reached = await rounds_of_parts(10)
    every = [moment for parts in reached.values() for moment in parts]
    assert len(set(every)) < len(every) / 2
