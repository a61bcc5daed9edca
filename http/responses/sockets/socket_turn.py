"""One message of a socket while it is answered: what it says beyond a request, and what is kept for it."""

from __future__ import annotations

from typing import Any, cast

import attrs
from quart import request

from greenroom.http.responses.sockets.local_histories import LocalHistories
from greenroom.schemas.messages.messages import JsonObject
from greenroom.schemas.problems import invalid, missing
from greenroom.schemas.protocols.store_protocol import Turns

CREATE = "response.create"
STATE = "socket_turn"
"""Name in the state of a request's scope."""
MAX_LANE = 64
"""Characters of the name of a lane."""


@attrs.define
class SocketTurn:
    """What the socket knows of a turn, and the turn of its socket.

    Args:
        socket: Number of the socket.
        histories: Of all sockets.

    Attributes:
        lane: What its events are marked with; they are answered one after the other all the same.
        generates: Whether anything is to be written.
        previous: The response that it goes on from.
    """

    socket: int
    histories: LocalHistories
    lane: str | None = None
    generates: bool = True
    previous: str | None = None

    def read(self, body: JsonObject) -> None:
        """Take from the message what makes it one of a socket.

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
        """Return what it goes on from, if the socket keeps that."""
        return None if self.previous is None else self.histories.find(self.socket, self.previous)

    def keep(self, response: str, turns: Turns) -> None:
        """Keep the history up to its response for the turns that follow on the socket."""
        self.histories.keep(self.socket, self.lane or "", response, turns)

    def fail(self) -> None:
        """Forget what it goes on from: a failed turn's chain is begun anew (Open Responses, 2026-04-24)."""
        if self.previous is not None:
            self.histories.evict(self.socket, self.previous)

    def _flag(self, value: Any) -> bool:
        if value is not None and not isinstance(value, bool):
            raise invalid("`generate` must be true or false.", "generate")
        return value is not False


def socket_turn() -> SocketTurn | None:
    """Return what the current request is on a socket; None if it came by HTTP."""
    return cast("SocketTurn | None", request.scope["state"].get(STATE))
