"""`include` in a query: what of items is shown beyond the usual."""

from __future__ import annotations

from werkzeug.datastructures import MultiDict

from greenroom.schemas.problems import invalid
from greenroom.schemas.responses.converter import RESPONSES
from greenroom.schemas.responses.requests import Includable
from greenroom.schemas.wire import WireError


def check_included(query: MultiDict[str, str]) -> list[str]:
    """Return what a query includes, all of which the API knows.

    Raises:
        ProblemError: 400 that names what it does not.
    """
    included = [*query.getlist("include"), *query.getlist("include[]")]
    for name in included:
        try:
            RESPONSES.structure(name, Includable)
        except WireError as error:
            raise invalid(f"`include` {error}.", "include") from None
    return included
