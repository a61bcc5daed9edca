"""Quart-Trio's request, mended: its ending reaches Hypercorn, and what it holds is given back."""

from __future__ import annotations

from contextlib import ExitStack
from typing import cast

import trio
from hypercorn.typing import ASGIReceiveCallable, ASGISendCallable, ASGISendEvent
from quart import Request, request
from quart_trio.asgi import TrioASGIHTTPConnection


class RequestConnection(TrioASGIHTTPConnection):
    """One request from its first byte to the last of its answer."""

    async def __call__(self, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        """Answer; whatever the answer held is closed, even if it was never begun."""
        with ExitStack() as held:
            self.scope["state"]["held"] = held
            await super().__call__(receive, send)

    async def handle_request(  # type: ignore[override]
        self, nursery: trio.Nursery, request: Request, send: ASGISendCallable
    ) -> None:
        """Answer, letting Hypercorn finish.

        Quart-Trio cancels its request as soon as the last part is sent, while Hypercorn is still finishing
        inside it: connections were neither closed nor reaped.
        """

        async def send_whole_ending(message: ASGISendEvent) -> None:
            if message["type"] != "http.response.body" or message.get("more_body", False):
                await send(message)
                return
            with trio.CancelScope(shield=True):
                await send(message)

        await super().handle_request(nursery, request, send_whole_ending)


def held() -> ExitStack:
    """What the current request holds: closed when its answer has ended or its client has left."""
    return cast("ExitStack", request.scope["state"]["held"])
