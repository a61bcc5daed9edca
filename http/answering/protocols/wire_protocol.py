"""What the application has to know of a protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import attrs
from quart import Blueprint
from werkzeug.datastructures import Headers

from greenroom.actors.actor_refs import ActorRefs
from greenroom.http.answering.errors.problem_documents import ErrorMembers
from greenroom.schemas.pool_protocol import ModelCard

Routes = Callable[[ActorRefs, float], Sequence[Blueprint]]
"""Makes a protocol's routes, given the actors and the seconds that a client waits for its status at most."""


class ModelFormatter(Protocol):
    """Formats what is known of models in the words of a protocol."""

    def listed(self, cards: Sequence[ModelCard], query: Mapping[str, str]) -> object:
        """Return the answer to `GET /v1/models` as JSON has it.

        Args:
            query: The URL's.

        Raises:
            ProblemError: 400 that names what is wrong with the query.
        """

    def one(self, card: ModelCard) -> object:
        """Return the answer to `GET /v1/models/{id}` as JSON has it."""


@attrs.frozen
class WireProtocol:
    """A protocol's place among the paths, its routes, its errors and its list of models.

    Args:
        paths: What its paths begin with, e.g. `/v1/messages`; of several protocols the longest one wins.
        models: None if it has no such list under `/v1/models`.
        mark: Header that all its clients send and no others do: what they ask is answered in its shape,
            whatever the path.
        any_body_type: Its clients call JSON what they like. Browsers must not: a form of another site could
            be sent so, and always names its origin.
    """

    paths: tuple[str, ...]
    routes: Routes
    error_members: ErrorMembers
    models: ModelFormatter | None = None
    mark: str | None = None
    any_body_type: bool = False


def protocol_of(path: str, headers: Headers, protocols: Sequence[WireProtocol]) -> WireProtocol:
    """Return the protocol that a request speaks: its client's, else its path's, else the first one."""
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
