"""Formatting of the response of `POST /v1/responses`, as a stream or complete."""

from __future__ import annotations

import time
from collections.abc import Sequence

import attrs

from greenroom.http.answering.collecting.collected_answer import CollectedChoice
from greenroom.http.responses.output.response_object import (
    ResponseEcho,
    ResponseHead,
    answered_members,
    encoded_response,
)
from greenroom.http.responses.output.response_stream import ResponseStream


@attrs.frozen
class ResponseFormatter:
    """Formats the response to one request.

    Args:
        echo: The request's members that the response repeats.
        answer_id: The response's id, `resp_…`.
        created: Unix time of creation in seconds.
    """

    echo: ResponseEcho
    answer_id: str
    created: int = attrs.field(factory=lambda: int(time.time()))

    def stream(self, model: str) -> ResponseStream:
        return ResponseStream(self.echo, ResponseHead(self.answer_id, model, self.created))

    def whole(self, model: str, choices: Sequence[CollectedChoice]) -> bytes:
        """Return the complete response."""
        [choice] = choices
        head = ResponseHead(self.answer_id, model, self.created)
        echo = self.echo.answered_with(choice.parameters)
        return encoded_response(echo, answered_members(echo, head, choice, int(time.time())))
