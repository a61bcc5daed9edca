"""Status updates, time-outs and refusals of requests that wait for a model."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

import attrs

from greenroom.actors.pool.eviction_policy import MEMORY_TIMEOUT
from greenroom.actors.pool.lease_queue import Ticket
from greenroom.actors.pool.model_record import ModelRecord, seconds_until_retry
from greenroom.actors.pool.pool_state import ModelUse, Reason, Refusal, Residency
from greenroom.schemas.events.events import QueueStatus
from greenroom.schemas.problems import Problem, insufficient_memory, memory_in_use, no_room, queue_timeout
from greenroom.schemas.settings.caller import is_allowed


@attrs.frozen(eq=False)
class WaitingRoom:
    """The models for which requests wait, and the memory that they share. `limit`: bytes for all models
    together; None if unknown.
    """

    records: Collection[ModelRecord]
    limit: int | None = None

    @property
    def loading(self) -> list[ModelRecord]:
        return [record for record in self.records if record.loading]

    @property
    def unloading(self) -> list[ModelRecord]:
        """Models that unload, or will once their running requests have ended."""
        return [record for record in self.records if _leaves(record)]

    @property
    def available_bytes(self) -> int | None:
        """Bytes that no model has now; None without a limit."""
        if self.limit is None:
            return None
        return max(0, self.limit - sum(record.use.nbytes for record in self.records))


def send_changes(room: WaitingRoom, now: float) -> None:
    """Send waiting requests their status if it has changed. `now`: present time, by `time.monotonic()`."""
    for record in room.records:
        for ticket, status in _statuses(record, room, now):
            if status != ticket.status:
                ticket.status = status
                ticket.reply.send(status)


def greet_newcomers(room: WaitingRoom, now: float) -> None:
    """Send a first status to waiting requests that have none. `now`: present time, by `time.monotonic()`."""
    for record in room.records:
        if all(ticket.status is not None for ticket in record.tickets):
            continue
        for ticket, status in _statuses(record, room, now):
            if ticket.status is None:
                ticket.status = status
                ticket.reply.send(status)


def _statuses(record: ModelRecord, room: WaitingRoom, now: float) -> Iterator[tuple[Ticket, QueueStatus]]:
    if not record.tickets:
        return
    common = _common_status(record, room, now)
    tickets = record.tickets.in_turn(record.held, now)
    etas = record.etas([(ticket.slots, ticket.tokens) for ticket in tickets], now)
    for position, (ticket, eta) in enumerate(zip(tickets, etas, strict=True)):
        status = _as_known_to(ticket, attrs.evolve(common, position=position))
        yield ticket, attrs.evolve(status, eta_ms=eta) if status.status == "queued" else status


def _as_known_to(ticket: Ticket, status: QueueStatus) -> QueueStatus:
    """Return a status without the names, and the bytes, of models that its receiver may not use."""
    if not ticket.allowed:
        return status
    loading, unloading = (
        tuple(name for name in names if is_allowed(ticket.allowed, name))
        for names in (status.loading, status.unloading)
    )
    return attrs.evolve(status, loading=loading, unloading=unloading, available_bytes=None)


def _common_status(record: ModelRecord, room: WaitingRoom, now: float) -> QueueStatus:
    model, need = record.key.model, record.use.need
    if record.use.ready and not record.use.paused:
        return QueueStatus("queued", 0, model, required_bytes=need)
    if (download := record.download) is not None:
        return QueueStatus(
            "downloading",
            0,
            model,
            download.eta_ms,
            required_bytes=need,
            download_bytes=download.nbytes,
            downloaded_bytes=download.received,
            bytes_per_second=round(download.rate),
        )
    if record.loading:
        loaded = None if need is None else round(need * record.progress)
        eta = record.eta_of_next(now)
        return QueueStatus("loading", 0, model, eta, (model,), required_bytes=need, loaded_bytes=loaded)
    loading, unloading = (
        tuple(other.key.model for other in others if other is not record)
        for others in (room.loading, room.unloading)
    )
    eta = _until_memory(record, room, now)
    return QueueStatus("waiting_for_model", 0, model, eta, loading, unloading, need, room.available_bytes)


def _until_memory(record: ModelRecord, room: WaitingRoom, now: float) -> int | None:
    """Return the estimated milliseconds until a model without memory is loaded; None if unknown.

    That is the rest of the time slices and of the running requests of the models that leave, or of the first
    one that may, and a load as long as the model's last one.
    """
    held = [other for other in room.records if other is not record and other.use.leases]
    leaving = [other for other in held if _leaves(other)] or held
    rests = [_rest(other, now) for other in leaving]
    known = [rest for rest in rests if rest is not None]
    if not record.use.load_seconds or len(known) < len(rests):
        return None
    return round(1000 * (min(known, default=0.0) + record.use.load_seconds))


def _rest(record: ModelRecord, now: float) -> float | None:
    """Return the estimated seconds until a model with running requests is unloaded; None if unknown."""
    if record.use.suspendable:
        return max(0.0, record.use.slice_left(now))
    leases = record.leases.items()
    rests = [record.waiting_time.rest(now - granted, lease.ticket.tokens) for lease, granted in leases]
    known = [rest for rest in rests if rest is not None]
    return max(0.0, record.use.slice_left(now), *known) if len(known) == len(rests) else None


def _leaves(record: ModelRecord) -> bool:
    return record.use.paused or record.use.residency is Residency.RECLAIMED


def late_tickets(records: Iterable[ModelRecord], now: float) -> Iterator[tuple[ModelRecord, Ticket, Problem]]:
    """Count the time of all waiting requests, and yield those that waited too long, with their problem.
    `now`: present time, by `time.monotonic()`.
    """
    for record in records:
        for ticket in list(record.tickets):
            if ticket.has_waited_too_long(now, loading=record.loading):
                eta = None if ticket.status is None else ticket.status.eta_ms
                problem = queue_timeout(record.key.model, ticket.timeout or 0, seconds_until_retry(eta))
                yield record, ticket, problem


def refusal_problem(refusal: Refusal, models: Iterable[ModelUse], allowed: Sequence[str] = ()) -> Problem:
    """Return the problem for the requests of a refused model. `allowed`: names and patterns of the models
    that the client may know of; empty for all.
    """
    model, required, available = refusal.key.model, refusal.required, refusal.available
    match refusal.reason:
        case Reason.HUNG:
            hung = (use.key for use in models if use.hung and is_allowed(allowed, use.key.model))
            return no_room(model, tuple(map(str, hung)))
        case Reason.TOO_LARGE:
            return insufficient_memory(model, required, available, refusal.freed)
        case Reason.OTHERS:
            return memory_in_use(model, required, available, refusal.freed, MEMORY_TIMEOUT)
