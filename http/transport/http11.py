"""HTTP/1.1 on one connection: Hypercorn's protocol without what this server has no use for."""

from __future__ import annotations

from itertools import chain
from typing import Any

import h11
from hypercorn.config import Config
from hypercorn.events import Closed, RawData
from hypercorn.protocol.events import Body, Event, Request
from hypercorn.protocol.h11 import STREAM_ID, H11Protocol
from hypercorn.protocol.http_stream import HTTPStream

from greenroom.http.answering.problem_documents import ErrorMembers
from greenroom.http.transport.closing_response import closing_response
from greenroom.http.transport.request_head import is_well_formed
from greenroom.schemas.problems import Problem


class ServerConfig(Config):
    """Hypercorn's configuration, with the shape of what is refused before a path is known."""

    def __init__(self, error_members: ErrorMembers) -> None:
        self.error_members = error_members


class Http11(H11Protocol):
    """HTTP/1.1 and nothing else: neither HTTP/2 nor WebSocket."""

    stream: HTTPStream | None
    connection: h11.Connection
    config: ServerConfig
    _chunked = False

    async def stream_send(self, event: Event) -> None:
        """Send a part of a response."""
        if isinstance(event, Body) and self._chunked and self.connection.our_state is h11.SEND_BODY:
            # h11 would do the same through five layers, once per token.
            await self.send(RawData(b"%x\r\n%b\r\n" % (len(event.data), event.data)))
            return
        await super().stream_send(event)

    async def _send_h11_event(self, event: Any) -> None:
        if isinstance(event, h11.Response):
            has_length = any(name == b"content-length" for name, _ in event.headers)
            self._chunked = not has_length and self.connection.their_http_version == b"1.1"
        await super()._send_h11_event(event)

    async def _check_protocol(self, event: h11.Request) -> None:
        """Ignore upgrades, as a server may."""

    async def _create_stream(self, request: h11.Request) -> None:
        if not is_well_formed(request):
            await self._send_error_response(400, "The request's target or its Host is malformed.")
            await self.send(Closed())
            return
        self.stream = HTTPStream(
            self.app,
            self.config,
            self.context,
            self.task_group,
            self.ssl,
            self.client,
            self.server,
            self.stream_send,
            STREAM_ID,
        )
        await self.stream.handle(
            Request(
                stream_id=STREAM_ID,
                headers=list(request.headers),
                http_version=request.http_version.decode(),
                method=request.method.decode("ascii").upper(),
                raw_path=request.target,
                state=self.connection_state,
            )
        )

    async def _send_error_response(
        self, status_code: int, detail: str = "The request is not valid HTTP/1.1."
    ) -> None:
        """Answer what is no HTTP at all with a problem document too."""
        problem = Problem(status_code, "bad_request", detail)
        headers, body = closing_response(problem, self.config.error_members)
        encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
        all_headers = list(chain(encoded, self.config.response_headers("h11")))
        await self._send_h11_event(h11.Response(status_code=status_code, headers=all_headers))
        await self._send_h11_event(h11.Data(data=body))
        await self._send_h11_event(h11.EndOfMessage())
