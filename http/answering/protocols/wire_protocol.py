"""Description of a wire protocol for the application."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import attrs
from quart import Blueprint
from werkzeug.datastructures import Headers

from greenroom.http.answering.requests.route_services import RouteServices
from greenroom.http.errors.problem_documents import ErrorMembers
from greenroom.schemas.models.lifecycle import ModelState
from greenroom.schemas.models.model_description import ModelDescription

States = Mapping[str, ModelState]

Routes = Callable[[RouteServices], Sequence[Blueprint]]
"""Makes a protocol's routes, given the objects that they work with."""


class ModelFormatter(Protocol):
    """Formats model descriptions in the format of a protocol."""

    def listed(self, models: Sequence[ModelDescription], states: States, query: Mapping[str, str]) -> object:
        """Return the response to `GET /v1/models` as a JSON-like object, or as bytes.

        Args:
            models: The models; the same object as before while nothing about them has changed.
            states: States of the models that were used, by id.
            query: Parameters of the URL's query.

        Raises:
            ProblemError: 400 that names the wrong query parameter.
        """

    def one(self, model: ModelDescription, states: States) -> object:
        """Return the response to `GET /v1/models/{id}` as a JSON-like object."""


@attrs.frozen
class WireProtocol:
    """Paths, routes, error format and model list of a protocol.

    Args:
        paths: Prefixes of its paths, e.g. `/v1/messages`; the longest matching prefix of all protocols wins.
        models: Formatter of its model list; None if it has none under `/v1/models`.
        mark: Header that only its clients send, on every request: they get this protocol's format on any
            path.
        any_body_type: True if its clients send JSON under any content type. Browsers must not: another site's
            form could send such a body, but a form always sends its origin.
        name: Name of the protocol, for records.
    """

    paths: tuple[str, ...]
    routes: Routes
    error_members: ErrorMembers
    models: ModelFormatter | None = None
    mark: str | None = None
    any_body_type: bool = False
    name: str = ""


def protocol_name(path: str, headers: Headers, protocols: Sequence[WireProtocol]) -> str:
    """Return the name of the protocol that a request belongs to; empty for a path of none."""
    found = protocol_of(path, headers, protocols)
    by_mark = found.mark is not None and found.mark in headers
    return found.name if by_mark or any(map(path.startswith, found.paths)) else ""


def protocol_of(path: str, headers: Headers, protocols: Sequence[WireProtocol]) -> WireProtocol:
    """Return the protocol of a request: its client's, else its path's, else the first one."""
    for protocol in protocols:
        if protocol.mark is not None and protocol.mark in headers:
            return protocol
    found = [
        (len(prefix), protocol)
        for protocol in protocols
        for prefix in protocol.paths
        if path.startswith(prefix)
    ]
    return max(found, key=lambda entry: entry[0])[1] if found else protocols[0]
