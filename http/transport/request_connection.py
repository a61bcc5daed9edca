"""Quart-Trio's request, with resources that are released when it ends."""

from __future__ import annotations

from contextlib import ExitStack

from hypercorn.typing import ASGIReceiveCallable, ASGISendCallable
from quart_trio.asgi import TrioASGIHTTPConnection


class RequestConnection(TrioASGIHTTPConnection):
    """One request from its first byte to the last of its answer."""

    async def __call__(self, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        """Answer, and release the request's resources, even if its answer was never begun."""
        with ExitStack() as resources:
            self.scope["state"]["resources"] = resources
            await super().__call__(receive, send)
