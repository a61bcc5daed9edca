"""The answer to a WebSocket message: a stream of events, and the history kept for later turns."""

from __future__ import annotations

import json
from collections.abc import Sequence

import attrs
import trio
from quart import Response

from greenroom.actors.requests.consultation import count_prompt_tokens
from greenroom.http.answering.answer_request import answer_request
from greenroom.http.answering.collecting.collected_answer import CollectedChoice
from greenroom.http.answering.collecting.recorded_answer import Recording
from greenroom.http.answering.requests.current_request import request_client, request_owner
from greenroom.http.answering.requests.route_services import RouteServices
from greenroom.http.encoding.server_sent_events import SERVER_SENT_EVENTS
from greenroom.http.responses.history.recall import HistoryReader
from greenroom.http.responses.history.recalled import Recalled
from greenroom.http.responses.output.output_items import output_items
from greenroom.http.responses.output.response_formatter import ResponseFormatter
from greenroom.http.responses.output.response_stream import DONE
from greenroom.http.responses.sockets.socket_turn import SocketTurn
from greenroom.http.responses.turns.stored_answer import answer_stored
from greenroom.http.responses.turns.turn import Turn
from greenroom.schemas.problems import Problem
from greenroom.schemas.protocols.store_protocol import Turns
from greenroom.schemas.stored import StoredItem, StoredTurn


async def answer_on_socket(
    services: RouteServices, histories: HistoryReader, turn: Turn, socket: SocketTurn
) -> Response:
    """Return the stream of a response; one that is not stored is kept for the socket's next turns.

    Raises:
        ProblemError: The request is rejected, or failed before its status was sent.
    """
    if turn.stored and socket.generates:
        return await answer_stored(services, histories, turn, stream=True)
    known = socket.history() if turn.asked.conversation is None else None
    recalled = turn.alone or await histories.recall(turn.asked, request_owner(), request_client(), known)
    brought = await trio.to_thread.run_sync(recalled.stored_input, turn.formatter.answer_id)
    kept = KeptTurn(socket, known or Turns(()), recalled, brought, turn.formatter)
    if not socket.generates:
        return await _prepare(services, recalled, kept)
    return await answer_request(
        services,
        [recalled.request],
        turn.formatter,
        stream=True,
        recording=Recording(kept.record, DONE),
    )


@attrs.frozen
class KeptTurn:
    """Keeps a turn that is not stored for later turns of its socket.

    Args:
        before: Earlier turns.
        recalled: The request with its history.
        brought: The request's own items.
    """

    socket: SocketTurn
    before: Turns
    recalled: Recalled
    brought: tuple[StoredItem, ...]
    formatter: ResponseFormatter

    async def record(self, _model: str, choices: Sequence[CollectedChoice]) -> Problem | None:
        """Keep the complete turn."""
        [choice] = choices
        echo, ident = self.formatter.echo, self.formatter.answer_id
        items = output_items(choice, ident, echo.calls, seals_thoughts=echo.seals_thoughts)
        self.keep(
            tuple(StoredItem(str(item["id"]), json.dumps(item)) for item in items), choice.system_prompt
        )
        return None

    def keep(self, written: tuple[StoredItem, ...], system_prompt: str | None) -> None:
        """Keep the turn with the model's output.

        Args:
            written: Output items.
            system_prompt: See `Turns`; the prompt at the conversation's start takes precedence.
        """
        begun_with = self.recalled.system_prompt
        turns = Turns(
            (*self.before.turns, StoredTurn((*self.brought, *written))),
            self.recalled.left_out,
            system_prompt if begun_with is None else begun_with,
        )
        self.socket.keep(self.formatter.answer_id, turns)


async def _prepare(services: RouteServices, recalled: Recalled, kept: KeptTurn) -> Response:
    """Return the events of a response without output, which later turns can continue."""
    request = await services.with_files(recalled.request)
    await count_prompt_tokens(services.refs.pool, request)
    kept.keep((), None)
    events = kept.formatter.stream(str(request.key)).without_output()
    return Response(events, content_type=SERVER_SENT_EVENTS)
