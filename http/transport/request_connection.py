"""Quart-Trio's connection with resources per request, and fair scheduling of uploads."""

from __future__ import annotations

from collections.abc import Awaitable
from contextlib import ExitStack
from typing import Any

import trio
from hypercorn.typing import ASGIReceiveCallable, ASGIReceiveEvent, ASGISendCallable, ConnectionState
from quart.wrappers import Request
from quart_trio.asgi import TrioASGIHTTPConnection

from greenroom.http.errors.answer_cut import AnswerCutError
from greenroom.http.transport.flow_controlled_body import ASK_FOR_BODY, FlowControlledBody

TURN_BYTES = 64 * 1024
"""Bytes of a body that are passed on per turn; smaller bodies wait for no turn."""

ANSWERED = "answered"
"""Key in the state of a scope, true once the end of the response is sent."""

_TURN: trio.lowlevel.RunVar[trio.Lock] = trio.lowlevel.RunVar("upload_turn")


class RequestConnection(TrioASGIHTTPConnection):
    """Handles one request from its first byte to the last byte of its response.

    Bodies are parsed as they arrive. To keep each pass of the event loop short, all concurrent uploads
    together pass on `TURN_BYTES` per pass; a generated token takes several passes to reach its client.
    """

    async def __call__(self, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        """Answer the request, and release its resources even if the response never started."""
        with ExitStack() as resources:
            # Optional in ASGI: Quart's test client sends none.
            state = self.scope.setdefault("state", ConnectionState({}))
            state["resources"], state[ANSWERED] = resources, False
            await super().__call__(receive, send)

    async def handle_request(  # type: ignore[override]
        self, nursery: trio.Nursery, request: Request, send: ASGISendCallable
    ) -> None:
        """Answer the request; an aborted response is left incomplete, so that the connection closes."""
        if isinstance(request.body, FlowControlledBody):
            request.body.ask = self.scope["state"].get(ASK_FOR_BODY)
        try:
            await super().handle_request(nursery, request, self._marking(send))
        except AnswerCutError:
            nursery.cancel_scope.cancel("the answer was cut off")

    def _marking(self, send: ASGISendCallable) -> ASGISendCallable:
        """Return a function that sends an event, and marks the request as answered with the last one.

        It is no coroutine function, because it runs once per token.
        """
        state = self.scope["state"]

        def send_marked(event: Any) -> Awaitable[None]:
            # A client may leave as soon as it has the end, before the send returns.
            if not event.get("more_body") and event["type"] == "http.response.body":
                state[ANSWERED] = True
            return send(event)

        return send_marked

    async def handle_messages(  # type: ignore[override]
        self, nursery: trio.Nursery, request: Request, receive: ASGIReceiveCallable
    ) -> None:
        """Pass on the parts of the body in turn with other uploads, as fast as they are read."""
        received = 0

        async def receive_in_turn() -> ASGIReceiveEvent:
            nonlocal received
            paced = request.body if isinstance(request.body, FlowControlledBody) else None
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
    """Wait until no other upload runs in this pass of the event loop."""
    try:
        turn = _TURN.get()
    except LookupError:
        turn = trio.Lock()
        _TURN.set(turn)
    async with turn:
        await trio.lowlevel.checkpoint()
