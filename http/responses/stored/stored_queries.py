"""Query parameters of stored responses."""

from __future__ import annotations

import json

import attrs
from werkzeug.datastructures import MultiDict

from greenroom.http.responses.items.included import check_included
from greenroom.http.responses.items.item_bodies import encrypt_reasoning
from greenroom.schemas.problems import invalid
from greenroom.schemas.responses.requests import ENCRYPTED_REASONING
from greenroom.schemas.stored import StoredResponse

_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
_LONGEST_NUMBER = 15
"""Limit of digits; no stream has so many events."""


@attrs.frozen
class StoredQuery:
    """Options for showing a stored response.

    Args:
        stream: True to return the response as events.
        starting_after: Number of the last event that the client has; -1 for none.
        encrypted: True to add encrypted content to reasoning items, even if the original request did not ask
            for it.
        obfuscates: True to pad deltas, False not to; None for the option of the original request.
    """

    stream: bool
    starting_after: int
    encrypted: bool
    obfuscates: bool | None = None


def parse_stored_query(query: MultiDict[str, str]) -> StoredQuery:
    """Return the parsed query parameters.

    Raises:
        ProblemError: 400 that names an invalid parameter.
    """
    stream = bool(query_boolean(query, "stream"))
    obfuscates = query_boolean(query, "include_obfuscation")
    after = query.get("starting_after")
    if after is not None and not stream:
        raise invalid("`starting_after` is only of use with `stream=true`.", "starting_after")
    included = check_included(query)
    return StoredQuery(
        stream, -1 if after is None else _number(after), ENCRYPTED_REASONING in included, obfuscates
    )


def with_encrypted_reasoning(stored: StoredResponse) -> StoredResponse:
    """Return a response with encrypted content in its reasoning items. May take long if it is large."""
    response = json.loads(stored.body)
    response["output"] = [encrypt_reasoning(item) for item in response["output"]]
    return attrs.evolve(stored, body=json.dumps(response))


def query_boolean(query: MultiDict[str, str], name: str) -> bool | None:
    """Return a query parameter that is true or false, or None if it was not sent.

    Raises:
        ProblemError: 400 that names the parameter.
    """
    if name not in query:
        return None
    value = query[name].lower()
    if value not in _BOOLEANS:
        raise invalid(f"`{name}` must be true or false.", name)
    return _BOOLEANS[value]


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _LONGEST_NUMBER):
        detail = "`starting_after` must be the number of an event, which is 0 or more."
        raise invalid(detail, "starting_after")
    return int(text)
