"""Descriptions of routes, from which `/openapi.json` is made."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import attrs
import cattrs

F = TypeVar("F", bound=Callable[..., Any])

JSON = "application/json"
EVENTS = "text/event-stream"
LINES = "application/x-ndjson"
TEXT = "text/plain"
HTML = "text/html"
FORM = "multipart/form-data"

ANSWERED_BY_A_MODEL = (404, 500, 501, 503, 507)
"""Statuses of problems of a request that waits for a model and is answered by it."""
STORED = (404, 409, 503, 507)
"""Statuses of problems of a request for stored objects."""
FOR_OPERATORS = (403,)
"""Statuses of problems of a route that answers to programs of the server's machine only."""


@attrs.frozen
class RouteDescription:
    """The description of a route for the reader of `/openapi.json`.

    Every route may also answer with the problems of any request (`greenroom.http.operations.openapi`), and
    one that reads a body with those of bodies.

    Args:
        summary: Sentence without a full stop, in the imperative.
        body: Wire type of the request's body; None for no body, or one without a type of its own.
        converter: Converter that reads the body; it tells which types have several forms on the wire.
        body_media: Media type of the body; None for no body.
        query: attrs class whose fields are the parameters of the URL's query; None for none.
        answer: Wire type of the answer in JSON; None for one that is not described further.
        media: Media types of the answer.
        status: Status of the answer; None if the route only refuses.
        problems: Statuses of the route's own problems.
    """

    summary: str
    body: Any = None
    converter: cattrs.Converter | None = None
    body_media: str | None = None
    query: type[attrs.AttrsInstance] | None = None
    answer: Any = None
    media: tuple[str, ...] = (JSON,)
    status: int | None = 200
    problems: tuple[int, ...] = ()


_DESCRIPTION = "route_description"


def described(
    summary: str,
    *,
    body: Any = None,
    converter: cattrs.Converter | None = None,
    body_media: str | None = None,
    query: type[attrs.AttrsInstance] | None = None,
    answer: Any = None,
    media: tuple[str, ...] = (JSON,),
    status: int | None = 200,
    problems: tuple[int, ...] = (),
) -> Callable[[F], F]:
    """Return a decorator that describes a route's function, below the decorator that adds the route.

    Args:
        summary: See `RouteDescription`; likewise the others. A `body` is JSON unless `body_media` says so.
    """
    body_media = JSON if body is not None and body_media is None else body_media
    description = RouteDescription(
        summary, body, converter, body_media, query, answer, media, status, problems
    )

    def describe(handler: F) -> F:
        setattr(handler, _DESCRIPTION, description)
        return handler

    return describe


def description_of(handler: Any) -> RouteDescription | None:
    """Return the description of a route's function; None if it has none."""
    found = getattr(inspect.unwrap(getattr(handler, "func", handler)), _DESCRIPTION, None)
    return found if isinstance(found, RouteDescription) else None
