"""Status updates for requests that wait for a model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate

from greenroom.actors.pool.model_record import ModelRecord
from greenroom.actors.pool.tickets import Ticket
from greenroom.schemas.events.events import QueueStatus


def send_changes(records: Iterable[ModelRecord], now: float) -> None:
    """Send waiting requests their status if it has changed.

    Args:
        now: Present time, by `time.monotonic()`.
    """
    for record in records:
        for ticket, status in _statuses(record, now):
            if status != ticket.status:
                ticket.status = status
                ticket.reply.send(status)


def greet_newcomers(records: Iterable[ModelRecord], now: float) -> None:
    """Send a first status to waiting requests that have none.

    Args:
        now: Present time, by `time.monotonic()`.
    """
    for record in records:
        if all(ticket.status is not None for ticket in record.tickets):
            continue
        for ticket, status in _statuses(record, now):
            if ticket.status is None:
                ticket.status = status
                ticket.reply.send(status)


def _statuses(record: ModelRecord, now: float) -> Iterator[tuple[Ticket, QueueStatus]]:
    """Yield the status of each waiting request."""
    wanted = accumulate(ticket.slots for ticket in record.tickets)
    for position, (ticket, slots) in enumerate(zip(record.tickets, wanted, strict=True)):
        yield ticket, _status(record, position, slots, now)


def _status(record: ModelRecord, position: int, slots: int, now: float) -> QueueStatus:
    model = record.key.model
    if record.use.ready and not record.use.paused:
        return QueueStatus("queued", position, model, record.waiting_time.for_slots(slots))
    if record.loading:
        eta = record.waiting_time.for_load(now - record.use.changed, record.progress)
        return QueueStatus("loading", position, model, eta)
    return QueueStatus("waiting_for_model", position, model)
