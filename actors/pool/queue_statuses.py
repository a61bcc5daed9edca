"""Telling those who wait for a model where they stand."""

from __future__ import annotations

from collections.abc import Iterable

from greenroom.actors.pool.model_record import ModelRecord


def send_changes(records: Iterable[ModelRecord], now: float) -> None:
    """Send their status to those for whom it has changed.

    Args:
        now: `time.monotonic()`.
    """
    for record in records:
        for ticket, status in record.queue_statuses(now):
            if status != ticket.status:
                ticket.status = status
                ticket.reply.send(status)


def greet_newcomers(records: Iterable[ModelRecord], now: float) -> None:
    """Send their first status to those who have none.

    Args:
        now: `time.monotonic()`.
    """
    for record in records:
        if all(ticket.status is not None for ticket in record.tickets):
            continue
        for ticket, status in record.queue_statuses(now):
            if ticket.status is None:
                ticket.status = status
                ticket.reply.send(status)
