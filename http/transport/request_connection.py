"""Quart-Trio's request, mended: its end reaches Hypercorn, and its resources are released."""

from __future__ import annotations

from contextlib import ExitStack

import trio
from hypercorn.typing import ASGIReceiveCallable, ASGISendCallable, ASGISendEvent
from quart import Request
from quart_trio.asgi import TrioASGIHTTPConnection


class RequestConnection(TrioASGIHTTPConnection):
    """One request from its first byte to the last of its answer."""

    async def __call__(self, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        """Answer, and release the request's resources, even if its answer was never begun."""
        with ExitStack() as resources:
            self.scope["state"]["resources"] = resources
            await super().__call__(receive, send)

    async def handle_request(  # type: ignore[override]
        self, nursery: trio.Nursery, request: Request, send: ASGISendCallable
    ) -> None:
        """Answer, letting Hypercorn finish.

        Quart-Trio cancels its request as soon as the last part is sent, while Hypercorn is still finishing
        inside it: connections were neither closed nor reaped.
        """

        async def send_end_shielded(message: ASGISendEvent) -> None:
            if message["type"] != "http.response.body" or message.get("more_body", False):
                await send(message)
                return
            with trio.CancelScope(shield=True):
                await send(message)

        await super().handle_request(nursery, request, send_end_shielded)
