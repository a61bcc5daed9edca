"""The queue of requests that wait for a model (turns by client, arrival, priority), and the lease granted."""

from __future__ import annotations

import time
from bisect import insort
from collections.abc import Callable, Iterator
from itertools import accumulate
from types import TracebackType
from typing import Any

import attrs

from greenroom.actors.core.ref import Ref
from greenroom.actors.core.reply import Grant, Reply
from greenroom.engine.resources.fair_queue import Holdings, address_of
from greenroom.schemas.events.events import QueueStatus
from greenroom.schemas.messages.generation import Overrides
from greenroom.schemas.messages.requests import AppliedAdapter, turn_of
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.problems import Problem
from greenroom.schemas.protocols.model_protocol import ModelMessage

NOT_LOADED = frozenset(
    {
        "load_failed",
        "insufficient_memory",
        "memory_in_use",
        "no_room",
        "model_hung",
        "model_crashed",
        "model_not_found",
        "download_cancelled",
    }
)
"""Codes of the problems of models that cannot be loaded; others are the request's, or the whole server's."""

_OF_REMOTES = ("away", "busy", "failed", "refused", "silent", "unreachable", "unsupported")
NOT_ANSWERED = NOT_LOADED | {"context_length_exceeded", "model_broken", "queue_full"}
NOT_ANSWERED |= {f"remote_{why}" for why in _OF_REMOTES}
"""Codes of problems that another model of a route may not have."""


@attrs.define(eq=False)
class Ticket:
    """A waiting request.

    Args:
        slots: Number of slots that it can use; with fewer, its answers begin one by one.
        priority: Priority: each step above 0 puts it further behind other requests.
        timeout: Longest wait in seconds, loads not counted; None for no limit.
        since: Time of its arrival, by `time.monotonic()`.
        replaceable: True if another model answers it, should this one not load.
        status: Last status sent to its client; None before the first.
        client: Name of its client (`InferenceRequest.client`).
        tokens: Most tokens that its client lets an answer have; None if it sets no limit.
        allowed: Names and patterns of the models that its client may know of; empty for all.
        waited: Seconds that count for the limit, up to the time `counted`.
    """

    reply: Reply
    request_id: str
    slots: int = 1
    priority: int = 0
    timeout: float | None = None
    since: float = attrs.field(factory=time.monotonic)
    status: QueueStatus | None = None
    client: str = ""
    tokens: int | None = None
    allowed: tuple[str, ...] = ()
    replaceable: bool = False
    waited: float = attrs.field(default=0.0, init=False)
    counted: float = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.counted = self.since

    @property
    def turn(self) -> float:
        """Time by which the queue is sorted: its arrival, put off by its priority."""
        return turn_of(self.since, self.priority)

    def has_waited_too_long(self, now: float, *, loading: bool) -> bool:
        """Count the time since the last call, unless the model loads; return whether the limit is reached."""
        if not loading:
            self.waited += now - self.counted
        self.counted = now
        return self.timeout is not None and self.waited >= self.timeout

    def fail(self, problem: Problem, log: Any) -> None:
        self.reply.fail(problem)
        detail = {"detail": problem.detail} if problem.status >= 500 else {}
        passes = self.replaceable and problem.code in NOT_LOADED
        event = "model passed over" if passes else "request failed"
        log.warning(event, problem=problem.code, **detail, **self._fields())

    def log_cancelled(self, log: Any) -> None:
        """Log that the client left before the request was served."""
        log.info("request finished", reason="cancelled", **self._fields())

    def _fields(self) -> dict[str, Any]:
        seconds = round(time.monotonic() - self.since, 4)
        ids = {"request_id": self.request_id, "generated_tokens": 0}
        return {**ids, "queued_seconds": seconds, "seconds": seconds}


class TicketQueue:
    """A queue in which clients take turns; requests whose reply has no receiver are skipped.

    The client that holds the fewest slots is next, and of its requests the one whose turn is earliest. A
    request of lowered priority waits for those of all clients until its turn comes, and one of raised
    priority goes before those that have a later turn.
    """

    def __init__(self) -> None:
        self._tickets: list[Ticket] = []

    def __len__(self) -> int:
        return len(self._tickets)

    def __iter__(self) -> Iterator[Ticket]:
        return iter(self._tickets)

    def add(self, ticket: Ticket) -> None:
        """Add a ticket behind all whose turn is not later."""
        insort(self._tickets, ticket, key=lambda waiting: waiting.turn)

    def remove(self, ticket: Ticket) -> bool:
        """Remove a ticket; return whether it still waited."""
        waited = ticket in self._tickets
        if waited:
            self._tickets.remove(ticket)
        return waited

    @property
    def first_turn(self) -> float | None:
        """Turn of the first request; None if none waits."""
        return self._tickets[0].turn if self._tickets else None

    def in_turn(self, held: Holdings, now: float) -> list[Ticket]:
        """Return the tickets in the order in which they will be served."""
        due = [ticket for ticket in self._tickets if ticket.turn <= now]
        due = _by_share(due, lambda client: client, lambda client: held.of(client)[1])
        due = _by_share(due, address_of, lambda client: held.of(client)[0])
        raised = sorted((ticket for ticket in due if ticket.priority < 0), key=lambda ticket: ticket.turn)
        ordered: dict[Ticket, None] = {}
        for ticket in due:
            ordered |= dict.fromkeys(first for first in raised if first.turn < ticket.turn)
            ordered[ticket] = None
        return [*ordered, *(ticket for ticket in self._tickets if ticket.turn > now)]

    def next(self, held: Holdings, free_slots: int, slots: int, now: float) -> Ticket | None:
        """Remove and return the next ticket with a receiver that can begin.

        Without a free slot, that is one whose client holds less than its share of all slots: the engine then
        lets answers of others pause for it.
        """
        clients = {ticket.client for ticket in self._tickets if ticket.turn <= now}
        short = {client for client in clients if free_slots <= 0 and held.allow(client, 1, slots)}
        if free_slots <= 0 and not short:
            return None
        for ticket in self.in_turn(held, now):
            may_begin = free_slots > 0 or (ticket.client in short and ticket.turn <= now)
            if may_begin and not ticket.reply.closed:
                self._tickets.remove(ticket)
                return ticket
        return None

    def length_beyond(self, free_slots: int, priority: int = 0) -> int:
        """Return the number of requests without any free slot if one is added.

        Requests that have lowered their priority do not count for one that has not.
        """
        counted = [ticket.slots for ticket in self._tickets if priority > 0 or ticket.priority <= 0]
        beginnings = accumulate(counted, initial=0)
        return sum(taken >= free_slots for taken in beginnings)

    def clear(self) -> list[Ticket]:
        tickets, self._tickets = self._tickets, []
        return tickets


def _by_share(
    tickets: list[Ticket], name_of: Callable[[str], str], held_by: Callable[[str], int]
) -> list[Ticket]:
    """Return tickets in the order in which they are served if whoever holds the least is next."""
    held: dict[str, int] = {}
    ranks: dict[Ticket, int] = {}
    for ticket in tickets:
        name = name_of(ticket.client)
        ranks[ticket] = held.setdefault(name, held_by(ticket.client))
        held[name] += ticket.slots
    return sorted(tickets, key=lambda ticket: (ranks[ticket], ticket.turn))


@attrs.frozen
class NameFound:
    """A request named a profile, an adapter, or a list of models. Sent before the model, and any failure.

    Args:
        profile: Name of the profile or of the adapter; None for none.
        replaceable: True if the name means another model, should this one not load.
        adapter: LoRA adapter that the request applies; None for none.
        chosen: Reasons for which it was chosen among the models of a route; empty without one.
    """

    key: ModelKey
    profile: str | None
    defaults: Overrides
    replaceable: bool
    adapter: AppliedAdapter | None = None
    chosen: str = ""


class Lease:
    """A lease of slots in a ready model, which is not unloaded while the lease is open.

    Closing is synchronous, so a lease can be released during a cancellation.

    Args:
        release: Callback for each release of slots, of which `slots` are left.
    """

    def __init__(
        self, key: ModelKey, model: Ref[ModelMessage], ticket: Ticket, release: Callable[[Lease], None]
    ) -> None:
        self.key = key
        self.model = model
        self.ticket = ticket
        self.slots = ticket.slots
        self.priority = ticket.priority
        self._release: Callable[[Lease], None] | None = release

    def shrink(self, slots: int) -> None:
        """Release all but some slots, at least 1; an open lease may not grow."""
        if slots < self.slots and self._release is not None:
            self.slots = slots
            self._release(self)

    def close(self) -> None:
        """Release the slots; closing twice does nothing."""
        release, self._release, self.slots = self._release, None, 0
        if release is not None:
            release(self)

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@attrs.frozen(eq=False)
class Found:
    """The answer that the model exists: `model` can prepare requests, even without weights. `key`: key with
    the model's own name, even if the request used another (`default`); `is_here`: False if it is elsewhere.
    """

    key: ModelKey
    model: Ref[ModelMessage]
    is_here: bool = True


@attrs.frozen(eq=False)
class Granted(Grant):
    """The answer that the request may generate under `lease`."""

    lease: Lease

    def close(self) -> None:
        self.lease.close()
