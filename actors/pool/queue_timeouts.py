"""The limit of waiting for a model, which the setting `queue_timeout` sets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from greenroom.actors.pool.model_record import ModelRecord
from greenroom.actors.pool.tickets import Ticket
from greenroom.actors.pool.waiting_time import seconds_until_retry
from greenroom.schemas.problems import Problem, queue_timeout


def late_tickets(records: Iterable[ModelRecord], now: float) -> Iterator[tuple[ModelRecord, Ticket, Problem]]:
    """Count the time of all waiting requests, and yield those that waited too long, with their problem.

    Args:
        now: Present time, by `time.monotonic()`.
    """
    for record in records:
        for ticket in list(record.tickets):
            if ticket.has_waited_too_long(now, loading=record.loading):
                eta = None if ticket.status is None else ticket.status.eta_ms
                problem = queue_timeout(record.key.model, ticket.timeout or 0, seconds_until_retry(eta))
                yield record, ticket, problem
