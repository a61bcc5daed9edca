"""Quart-Trio's request, with resources that are released when it ends, and its turn among other uploads."""

from __future__ import annotations

from contextlib import ExitStack

import trio
from hypercorn.typing import ASGIReceiveCallable, ASGIReceiveEvent, ASGISendCallable
from quart.wrappers import Request
from quart_trio.asgi import TrioASGIHTTPConnection

from greenroom.http.answering.streaming.event_stream import AnswerCutError
from greenroom.http.transport.paced_body import PacedBody

TURN_BYTES = 64 * 1024
"""Of a body, which are handed on between two turns; smaller bodies wait for no turn."""

_TURN: trio.lowlevel.RunVar[trio.Lock] = trio.lowlevel.RunVar("upload_turn")


class RequestConnection(TrioASGIHTTPConnection):
    """One request from its first byte to the last of its answer.

    Bodies are looked through as they arrive. Of all that arrive at once, one hands on `TURN_BYTES` in each
    round of the event loop: a token passes through several, which must stay short however many upload.
    """

    async def __call__(self, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        """Answer, and release the request's resources, even if its answer was never begun."""
        with ExitStack() as resources:
            self.scope["state"]["resources"] = resources
            await super().__call__(receive, send)

    async def handle_request(  # type: ignore[override]
        self, nursery: trio.Nursery, request: Request, send: ASGISendCallable
    ) -> None:
        """Answer; the body of an answer that is cut off gets no end, so that the connection closes."""
        try:
            await super().handle_request(nursery, request, send)
        except AnswerCutError:
            nursery.cancel_scope.cancel("the answer was cut off")

    async def handle_messages(  # type: ignore[override]
        self, nursery: trio.Nursery, request: Request, receive: ASGIReceiveCallable
    ) -> None:
        """Hand on the parts of the body, each in its turn, as fast as they are taken."""
        received = 0

        async def receive_in_turn() -> ASGIReceiveEvent:
            nonlocal received
            paced = request.body if isinstance(request.body, PacedBody) else None
            if paced is not None:
                await paced.wait_for_room()
            event = await receive()
            if event["type"] == "http.request":
                received += len(event["body"])
                if paced is not None:
                    paced.expect(len(event["body"]))
                if received >= TURN_BYTES:
                    received = 0
                    await _wait_for_turn()
            return event

        await super().handle_messages(nursery, request, receive_in_turn)


async def _wait_for_turn() -> None:
    """Wait until this is the only upload that goes on in a round of the event loop."""
    try:
        turn = _TURN.get()
    except LookupError:
        turn = trio.Lock()
        _TURN.set(turn)
    async with turn:
        await trio.lowlevel.checkpoint()
