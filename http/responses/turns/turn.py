"""One turn as a client asks for it: what is to be answered, whether it is kept, and how it is formatted."""

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
    """A request for a response.

    Args:
        stored: The response is kept.
        alone: The whole request, if it needs nothing that the server keeps.
        input: What it brought as it is kept, of a request that stands alone and is.
    """

    asked: AskedResponse
    formatter: ResponseFormatter
    stored: bool
    alone: Recalled | None
    input: tuple[StoredItem, ...]

    @property
    def background(self) -> bool:
        """Whether nobody waits for it."""
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
    """Return what a client asks for.

    Args:
        answer_id: `resp_…`.
        identity: The request's id, and its client.
        storing: The server keeps responses, and does so unless it is told otherwise.
        defaults: What holds of the parameters that it does not name.

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
