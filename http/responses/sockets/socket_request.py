"""One WebSocket message while it is answered: its own members, and access to the socket's histories."""

from __future__ import annotations

from typing import Any, cast

import attrs
from quart import request

from greenroom.http.responses.sockets.local_histories import LocalHistories
from greenroom.schemas.messages.messages import JsonObject
from greenroom.schemas.problems import invalid, missing
from greenroom.schemas.stored import Turns

CREATE = "response.create"
STATE = "socket_request"
"""Key in the state of a request's scope."""
MAX_LANE = 64
"""Length limit of a lane's name in characters."""


@attrs.define
class SocketRequest:
    """One message of a socket: its own members, and the histories kept in memory.

    Args:
        socket: The socket's number.
        histories: Histories of all sockets.

    Attributes:
        lane: Value of `stream_id` in its events; turns of different lanes are still answered in sequence.
        generates: True if output is to be generated.
        previous: Id of the previous response.
    """

    socket: int
    histories: LocalHistories
    lane: str | None = None
    generates: bool = True
    previous: str | None = None

    def read(self, body: JsonObject) -> None:
        """Read the members that only socket messages have.

        Raises:
            ProblemError: 400 that names the field.
        """
        previous, lane = body.get("previous_response_id"), body.get("stream_id")
        self.previous = previous if isinstance(previous, str) else None
        if lane is not None and not (isinstance(lane, str) and 0 < len(lane) <= MAX_LANE):
            raise invalid(f"`stream_id` must be a string of 1 to {MAX_LANE} characters.", "stream_id")
        self.lane = lane
        if "type" not in body:
            raise missing("type")
        if body["type"] != CREATE:
            raise invalid(f"`type` must be '{CREATE}': this server takes no other messages.", "type")
        if body.get("background"):
            detail = "`background` is not served over WebSocket: send such a request with POST."
            raise invalid(detail, "background", "unsupported_parameter")
        self.generates = self._flag(body.get("generate"))

    def history(self) -> Turns | None:
        """Return the history up to the previous response, if the socket has it."""
        return None if self.previous is None else self.histories.find(self.socket, self.previous)

    def keep(self, response: str, turns: Turns) -> None:
        """Keep the history up to this response for later turns of the socket."""
        self.histories.keep(self.socket, self.lane or "", response, turns)

    def fail(self) -> None:
        """Remove the previous response's history: a failure ends the chain (Open Responses, 2026-04-24)."""
        if self.previous is not None:
            self.histories.evict(self.socket, self.previous)

    def _flag(self, value: Any) -> bool:
        if value is not None and not isinstance(value, bool):
            raise invalid("`generate` must be true or false.", "generate")
        return value is not False


def socket_request() -> SocketRequest | None:
    """Return the socket's message that the current request answers; None if it came over HTTP."""
    return cast("SocketRequest | None", request.scope["state"].get(STATE))
