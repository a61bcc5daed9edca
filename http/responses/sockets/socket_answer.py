"""The answer to a WebSocket message: a stream of events, and the history kept for later requests."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import attrs
from quart import Response

from greenroom.actors.requests.prompt_queries import count_prompt_tokens
from greenroom.http.answering.answer_request import answer_request
from greenroom.http.answering.collecting.collected_answer import CollectedChoice
from greenroom.http.answering.collecting.completed_stream import OnComplete
from greenroom.http.answering.requests.current_request import request_client, request_owner
from greenroom.http.answering.requests.route_services import RouteServices
from greenroom.http.encoding.server_sent_events import SERVER_SENT_EVENTS
from greenroom.http.responses.history.history_reader import HistoryReader
from greenroom.http.responses.output.output_items import output_items
from greenroom.http.responses.output.response_formatter import ResponseFormatter
from greenroom.http.responses.output.response_stream import DONE
from greenroom.http.responses.requests.response_request import ParsedResponseRequest, RequestWithHistory
from greenroom.http.responses.sockets.socket_request import SocketRequest
from greenroom.http.responses.stored.stored_answer import answer_stored
from greenroom.schemas.problems import Problem
from greenroom.schemas.stored import StoredItem, StoredTurn, Turns


async def answer_on_socket(
    services: RouteServices, histories: HistoryReader, request: ParsedResponseRequest, socket: SocketRequest
) -> Response:
    """Return the stream of a response; one that is not stored is kept for the socket's next requests.

    Raises:
        ProblemError: The request is rejected, or failed before its status was sent.
    """
    if request.stored and socket.generates:
        return await answer_stored(services, histories, request, stream=True)
    known = socket.history() if request.conversation is None else None
    complete = await histories.complete(request, request_owner(), request_client(), known)
    history = _HistoryWriter(socket, complete, request.formatter)
    if not socket.generates:
        return await _prepare(services, history)
    on_complete = OnComplete(history.on_complete, DONE)
    return await answer_request(
        services, [complete.request], request.formatter, stream=True, on_complete=on_complete
    )


@attrs.frozen
class _HistoryWriter:
    """Adds a turn to the history of its WebSocket, which alone remembers it."""

    socket: SocketRequest
    complete: RequestWithHistory
    formatter: ResponseFormatter

    async def on_complete(self, _model: str, choices: Sequence[CollectedChoice]) -> Problem | None:
        """Add the complete turn to the history."""
        [choice] = choices
        echo, ident = self.formatter.echo, self.formatter.answer_id
        items = output_items(choice, ident, echo.calls, encrypts_reasoning=echo.encrypts_reasoning)
        self.keep(
            tuple(StoredItem(str(item["id"]), json.dumps(item)) for item in items), choice.system_prompt
        )
        return None

    def keep(self, output: tuple[StoredItem, ...], system_prompt: str | None) -> None:
        """Add the turn, with the model's output, to the history.

        Args:
            system_prompt: See `Turns`; the prompt at the conversation's start takes precedence.
        """
        before, turn = self.complete.turns, StoredTurn((*self.complete.stored_input, *output))
        started_with = system_prompt if before.system_prompt is None else before.system_prompt
        turns = Turns((*before.turns, turn), before.left_out, started_with)
        self.socket.keep(self.formatter.answer_id, turns)


async def _prepare(services: RouteServices, history: _HistoryWriter) -> Response:
    """Return the events of a response without output, which later requests can continue."""
    request = await services.with_files(history.complete.request)
    await count_prompt_tokens(services.refs.pool, request)
    history.keep((), None)
    events = _OneByOne(history.formatter.stream(str(request.key)).without_output())
    response = Response(events, content_type=SERVER_SENT_EVENTS)
    response.timeout = None
    return response


class _OneByOne:
    """Asynchronous iterator over events, each of which is made when the last one has been sent."""

    def __init__(self, events: Iterator[bytes]) -> None:
        self._events = events

    def __aiter__(self) -> _OneByOne:
        return self

    async def __anext__(self) -> bytes:
        for event in self._events:
            return event
        raise StopAsyncIteration
