"""Reports of the pool's children to the pool."""

from __future__ import annotations

import attrs

from greenroom.actors.core.reply import Reply
from greenroom.actors.pool.lease_queue import Lease, Ticket
from greenroom.actors.pool.model_record import ModelRecord, PooledModel
from greenroom.schemas.problems import Problem
from greenroom.schemas.protocols.model_protocol import ModelReport
from greenroom.schemas.protocols.pool_protocol import ModelName, NamedMessage


@attrs.frozen(eq=False)
class LookedUp:
    message: NamedMessage
    reply: Reply
    found: ModelName | Problem


@attrs.frozen
class FoundToPreload:
    """The end of a lookup of a model to load at the start."""

    name: str
    found: ModelName | Problem


@attrs.frozen(eq=False)
class TicketClosed:
    record: ModelRecord
    ticket: Ticket


@attrs.frozen(eq=False)
class LeaseReduced:
    record: ModelRecord
    lease: Lease


@attrs.frozen(eq=False)
class Reported:
    model: PooledModel
    report: ModelReport


@attrs.frozen(eq=False)
class Crashed:
    model: PooledModel


@attrs.frozen(eq=False)
class Exited:
    model: PooledModel


@attrs.frozen
class Tick:
    """The periodic report while requests wait."""


@attrs.frozen
class Expired:
    """The end of a model's time to live."""


@attrs.frozen
class FailAll:
    """The command to fail all requests that are left."""


@attrs.frozen
class DeviceLost:
    problem: Problem
