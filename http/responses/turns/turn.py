"""One turn requested by a client, with its storage and format."""

from __future__ import annotations

import attrs

from greenroom.actors.store.database.problems import storing_disabled
from greenroom.http.responses.history.recall import recall_nothing
from greenroom.http.responses.history.recalled import Recalled
from greenroom.http.responses.output.echo import make_echo
from greenroom.http.responses.output.response_formatter import ResponseFormatter
from greenroom.http.responses.requests.response_request import AskedResponse, parse_response_request
from greenroom.schemas.messages.generation import Overrides
from greenroom.schemas.messages.messages import JsonObject
from greenroom.schemas.problems import ProblemError, invalid
from greenroom.schemas.responses.requests import ResponseRequest
from greenroom.schemas.stored import StoredItem


@attrs.frozen
class Turn:
    """A parsed request for a response.

    Args:
        asked: Request without its history.
        formatter: Formatter of the response.
        stored: True if the response is stored.
        alone: The complete request if it needs nothing from the store, else None.
        input: Stored form of the request's own items; empty unless it is self-contained and stored.
    """

    asked: AskedResponse
    formatter: ResponseFormatter
    stored: bool
    alone: Recalled | None
    input: tuple[StoredItem, ...]

    @property
    def background(self) -> bool:
        """True if the response is generated in the background."""
        return bool(self.formatter.echo.members["background"])


def parse_turn(
    wire: ResponseRequest,
    body: JsonObject,
    *,
    answer_id: str,
    identity: tuple[str, str],
    storing: bool,
    defaults: Overrides,
) -> Turn:
    """Return the parsed turn.

    Args:
        answer_id: The response's id, `resp_…`.
        identity: The request's id, and its client.
        storing: True if the server stores responses unless told otherwise.
        defaults: Defaults of the generation parameters.

    Raises:
        ProblemError: 400 that names the offending field.
    """
    stored = _is_stored(wire, storing)
    asked = parse_response_request(wire, body, *identity)
    echo = make_echo(wire, {**defaults, **asked.parameters}, asked.text_format, stored=stored)
    alone = recall_nothing(asked) if asked.stands_alone else None
    kept = alone.stored_input(answer_id) if alone is not None and stored else ()
    return Turn(asked, ResponseFormatter(echo, answer_id), stored, alone, kept)


def _is_stored(wire: ResponseRequest, storing: bool) -> bool:
    if wire.store and not storing:
        raise ProblemError(storing_disabled())
    stored = storing if wire.store is None else wire.store
    if wire.background and not stored:
        detail = "`background` needs `store`: what nobody waits for can only be read where it is kept."
        raise invalid(detail, "background")
    return stored
