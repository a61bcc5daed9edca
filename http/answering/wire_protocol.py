"""What the application has to know of a protocol."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs
from quart import Blueprint

from greenroom.actors.core.ref import Ref
from greenroom.http.answering.problem_documents import ErrorMembers
from greenroom.schemas.pool_protocol import PoolMessage

Routes = Callable[[Ref[PoolMessage], float], Sequence[Blueprint]]
"""Makes a protocol's routes, given the pool and the seconds that a client waits for its status at most."""


@attrs.frozen
class WireProtocol:
    """A protocol's place among the paths, its routes and its errors.

    Args:
        paths: What its paths begin with, e.g. `/v1/messages`; of several protocols the longest one wins.
        any_body_type: Its clients call JSON what they like. Browsers must not: a form of another site could
            be sent so, and always names its origin.
    """

    paths: tuple[str, ...]
    routes: Routes
    error_members: ErrorMembers
    any_body_type: bool = False


def protocol_of(path: str, protocols: Sequence[WireProtocol]) -> WireProtocol:
    """Return the protocol that a path belongs to; the first one if it belongs to none."""
    found = [
        (len(prefix), protocol)
        for protocol in protocols
        for prefix in protocol.paths
        if path.startswith(prefix)
    ]
    return max(found, key=lambda entry: entry[0])[1] if found else protocols[0]
