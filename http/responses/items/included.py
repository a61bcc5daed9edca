"""The query parameter `include`: requests optional members of items."""

from __future__ import annotations

from werkzeug.datastructures import MultiDict

from greenroom.schemas.problems import invalid
from greenroom.schemas.responses.converter import RESPONSES
from greenroom.schemas.responses.requests import Includable
from greenroom.schemas.wire import WireError


def check_included(query: MultiDict[str, str]) -> list[str]:
    """Return the values of `include`, all known to the API.

    Raises:
        ProblemError: 400 that names an unknown value.
    """
    included = [*query.getlist("include"), *query.getlist("include[]")]
    for name in included:
        try:
            RESPONSES.structure(name, Includable)
        except WireError as error:
            raise invalid(f"`include` {error}.", "include") from None
    return included
