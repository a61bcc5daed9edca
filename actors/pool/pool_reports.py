"""Reports of the pool's children to the pool."""

from __future__ import annotations

import attrs

from greenroom.actors.core.reply import Reply
from greenroom.actors.pool.model_record import ModelRecord, PooledModel
from greenroom.actors.pool.tickets import Lease, Ticket
from greenroom.schemas.problems import Problem
from greenroom.schemas.protocols.model_protocol import ModelReport
from greenroom.schemas.protocols.pool_protocol import ModelDescriptions, ModelName, NamedMessage


@attrs.frozen(eq=False)
class LookedUp:
    """The end of a lookup for a message."""

    message: NamedMessage
    reply: Reply
    found: ModelName | Problem


@attrs.frozen(eq=False)
class Described:
    """The end of a lookup for operators."""

    reply: Reply
    answer: ModelDescriptions | Problem


@attrs.frozen
class FoundToPreload:
    """The end of a lookup of a model to load at the start."""

    name: str
    found: ModelName | Problem


@attrs.frozen(eq=False)
class TicketClosed:
    """The end of a waiting request."""

    record: ModelRecord
    ticket: Ticket


@attrs.frozen(eq=False)
class LeaseReduced:
    """The release of some slots of a lease, or of all."""

    record: ModelRecord
    lease: Lease


@attrs.frozen(eq=False)
class Reported:
    """A report of a model."""

    model: PooledModel
    report: ModelReport


@attrs.frozen(eq=False)
class Crashed:
    """The crash of a model's actor."""

    model: PooledModel


@attrs.frozen(eq=False)
class Exited:
    """The complete end of a model's actor."""

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
    """The command to stop loading models."""

    problem: Problem
