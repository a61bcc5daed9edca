"""All models that the pool knows, and the decisions about them, without any use of Trio."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import attrs

from greenroom.actors.core.fair_share import Pot
from greenroom.actors.core.reply import Reply
from greenroom.actors.engines.residences import HeldPrefixes
from greenroom.actors.pool.eviction_policy import commands_of, refusal_of
from greenroom.actors.pool.lease_queue import Found, Granted, Lease, Ticket
from greenroom.actors.pool.ledger import Ledger, MemoryReading
from greenroom.actors.pool.model_record import RETRY_UNKNOWN, ModelRecord, PooledModel
from greenroom.actors.pool.pool_events import (
    ActorCrashed,
    ActorEnded,
    ActorStopped,
    KeepAliveSet,
    LeaseGranted,
    LeaseReleased,
    ModelStarted,
    PreloadAsked,
    ReopenAsked,
    Reported,
    RequestQueued,
    RequestsFailed,
    RequestsLeft,
    UnloadAsked,
)
from greenroom.actors.pool.pool_overview import PoolOverview, UnloadRequests, reopen
from greenroom.actors.pool.pool_state import Plan, Residency
from greenroom.actors.pool.queue_statuses import greet_newcomers, late_tickets, refusal_problem, send_changes
from greenroom.actors.pool.residence_rules import ResidenceRule
from greenroom.engine.resources.fair_queue import Holdings
from greenroom.schemas.messages.requests import KeepAlive
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.models.lifecycle import ModelState
from greenroom.schemas.problems import Problem, model_crashed, model_in_use, queue_full
from greenroom.schemas.protocols.download_protocol import MAX_PULLS, too_many_pulls
from greenroom.schemas.protocols.model_protocol import (
    DropAdapter,
    FailRequests,
    LoadFailed,
    ModelReport,
    Stop,
    Trimmed,
    Unloaded,
)
from greenroom.schemas.protocols.pool_protocol import Acquire, ModelName, QueryPrompt, UnloadModel
from greenroom.schemas.settings.settings import Settings


@attrs.frozen(eq=False)
class Callbacks:
    """The functions through which the table acts and reads; none may block.

    Args:
        start: Function that creates a model's actor in the given state and starts to supervise it.
        available_memory: Function that returns the bytes that other programs leave; None if unknown.
        held: Prefixes that unloaded models have left for their next loads.
        release_held: Function that begins to drop all of them for a model; `HeldReleased` ends that.
        begin_download: Function that takes a model to be fetched, and the client whose request began that.
        rule_of: Function that returns the operator's settings of how long a model stays in memory.
    """

    start: Callable[[ModelKey, ModelState], PooledModel]
    on_ticket_closed: Callable[[ModelRecord, Ticket], None]
    on_lease_reduced: Callable[[ModelRecord, Lease], None]
    available_memory: Callable[[], int | None]
    held: HeldPrefixes
    release_held: Callable[[ModelKey], None]
    abandon: Callable[[str], None]
    begin_download: Callable[[str, str], None]
    rule_of: Callable[[str], ResidenceRule]
    revision: Callable[[], int] = lambda: 0


class ModelTable:
    """The pool's models: accepts requests, grants leases, and starts, loads, unloads and stops models.

    Attributes:
        overview: Answers to operators about all of them.
    """

    def __init__(self, settings: Settings, callbacks: Callbacks) -> None:
        self._max_queries = settings.max_batch + settings.max_queue
        self._queue_timeout = settings.queue_timeout
        self._callbacks = callbacks
        self._unloads = UnloadRequests(callbacks.held.drop)
        self._ledger = Ledger(settings, callbacks.rule_of, callbacks.revision)
        self._memory = MemoryReading(callbacks.available_memory, callbacks.held.nbytes)
        self.overview = PoolOverview(self._ledger, self._memory)

    def preload(self, key: ModelKey) -> None:
        if self._ledger[key].use.residency is Residency.NONE:
            self._ledger.apply(PreloadAsked(key))

    def unload(self, key: ModelKey, reply: Reply, message: UnloadModel) -> None:
        """Unload a model once its leases have ended, or reject that."""
        client, now = message.client, time.monotonic()
        if client is not None and self._ledger[key].is_kept_by_others(client, now):
            reply.fail(model_in_use(key.model))
            return
        if message.reopens and reopen(self._ledger[key]):
            self._ledger.apply(ReopenAsked(key))
        if self._unloads.add(self._ledger[key], reply, message):
            if message.now:
                self.overview.fail_requests(self._ledger[key])
            self._ledger.apply(UnloadAsked(key, message.reason))

    def admit(self, key: ModelKey, reply: Reply, message: Acquire, name: ModelName) -> None:
        """Queue a request for its model, found by that name, or reject it."""
        if reply.closed:
            return
        record, now = self._ledger[key], time.monotonic()
        record.figures.listed |= name.listed
        if refusal := (
            self._download_refusal(record, message.client)
            or record.refusal(now)
            or self._refusal(record, message, now)
        ):
            record.refuse(reply, refusal)
            return
        model = self._started(record)
        reply.send(Found(record.key, model.ref, model.takes_room))
        slots, timeout = min(message.choices, model.slots), self._queue_timeout if message.limited else None
        caller = message.client, message.tokens, message.allowed
        ticket = Ticket(reply, message.request_id, slots, message.priority, timeout, now, None, *caller)
        ticket.replaceable = name.replaceable
        record.tickets.add(ticket)
        self._ledger.apply(RequestQueued(key, now, ticket.turn))
        reply.watch(partial(self._callbacks.on_ticket_closed, record, ticket))
        self._record_use(record, message.client, message.keep_alive, now)

    def _refusal(self, record: ModelRecord, message: Acquire, now: float) -> Problem | None:
        self._started(record)  # it tells whether it takes room; without requests, it stops again
        loaded, state = record.use.residency is not Residency.NONE, self._ledger.state
        if not loaded and (unfit := refusal_of(state, record.use)):
            return refusal_problem(unfit, state.models.values(), message.allowed)
        return record.queue_refusal(message.client, now, message.priority)

    def _download_refusal(self, record: ModelRecord, client: str) -> Problem | None:
        if record.figures.listed or record.in_use:
            return None
        fetched = Pot(MAX_PULLS)
        for other in self._ledger.records:
            if not other.figures.listed and (waiting := [*other.tickets, *other.prompt_queries]):
                fetched.take(waiting[0].client)
        if fetched.room(client) <= 0:
            return too_many_pulls()
        self._callbacks.begin_download(record.key.model, client)
        return None

    def query_prompt(self, key: ModelKey, reply: Reply, message: QueryPrompt, name: ModelName) -> None:
        """Give a request access to a model, found by that name, for work without weights, or reject it."""
        if reply.closed:
            return
        record = self._ledger[key]
        record.figures.listed |= name.listed
        if refusal := self._download_refusal(record, message.client):
            reply.fail(refusal)
            return
        asked = Holdings((ticket.client, 1) for ticket in record.prompt_queries)
        if not asked.allow(message.client, 1, self._max_queries):
            reply.fail(queue_full(key.model, len(record.prompt_queries), RETRY_UNKNOWN))
            return
        reply.send(Found(record.key, self._started(record).ref))
        record.prompt_queries.append(ticket := Ticket(reply, message.request_id, 0, client=message.client))
        reply.watch(partial(self._callbacks.on_ticket_closed, record, ticket))

    def close_ticket(self, record: ModelRecord, ticket: Ticket) -> None:
        """Remove a request whose reply has closed or has ended with a problem."""
        if ticket in record.prompt_queries:
            record.prompt_queries.remove(ticket)
        elif record.tickets.remove(ticket):
            self._ledger.apply(RequestsLeft(record.key, turn=record.tickets.first_turn))
            record.forget_wishes()
            if not ticket.reply.ended:
                ticket.log_cancelled(record.log)

    def reduce_lease(self, record: ModelRecord, lease: Lease) -> None:
        """Let go of a lease that has released all of its slots."""
        if not lease.slots and (granted := record.leases.pop(lease, None)) is not None:
            now = time.monotonic()
            record.waiting_time.observe(now - granted, lease.ticket.tokens)
            self._ledger.apply(LeaseReleased(record.key, now))
            self._record_use(record, lease.ticket.client, None, now)
            record.forget_wishes()

    def fail_all(self, problem: Problem) -> None:
        self._unloads.fail_all(problem)
        self.overview.end_watches(problem)
        for record in self._ledger.records:
            self._fail_waiting(record, problem)
            if record.model is not None:
                record.model.send(FailRequests(problem))

    def fail_unloaded(self, problem: Problem) -> None:
        for record in self._ledger.records:
            if not record.use.ready:
                self._fail_waiting(record, problem)

    def drop_adapter(self, key: ModelKey, folder: str) -> None:
        model = self._ledger[key].model
        if model is not None:
            model.send(DropAdapter(folder))

    def tick(self) -> None:
        """Fail requests that waited too long, and send the others their status if it has changed."""
        now = time.monotonic()
        for record, ticket, problem in late_tickets(self._ledger.records, now):
            record.fail_ticket(ticket, problem)
            self.close_ticket(record, ticket)
        send_changes(self._ledger.waiting_room, now)

    def record(self, model: PooledModel, report: ModelReport) -> None:
        """Record a model's report, unless its actor has been stopped."""
        record = self._ledger[model.key]
        if model not in (record.model, record.remnant) or record.takes_no_decision(report):
            return
        now = time.monotonic()
        record.record_report(report, now)
        self._ledger.apply(Reported(record.key, report, now))
        if isinstance(report, Unloaded | Trimmed):
            self._memory.expire()
        self._unloads.answer(record, report)
        refusal = report.problem if isinstance(report, LoadFailed) else record.refusal(now)
        if refusal is not None:
            self._fail_waiting(record, refusal)

    def record_crash(self, model: PooledModel) -> None:
        """Record an actor's crash as a failed load; its memory stays granted while its worker holds it."""
        record = self._ledger[model.key]
        if record.model is not model:
            return
        self.record(model, LoadFailed(model_crashed(model.key.model)))
        record.remove_actor()
        if record.remnant is None and not model.released:
            record.remnant = model
            self._ledger.apply(ActorCrashed(record.key, holds_memory=True))

    def record_exit(self, model: PooledModel) -> None:
        """Record the complete end of an actor, and free its place."""
        record = self._ledger[model.key]
        if model not in (record.model, record.remnant):
            return
        if model is record.remnant:
            record.remnant = None
        else:
            record.remove_actor()
        if record.remnant is None:
            self._ledger.apply(ActorEnded(record.key))
            self._unloads.answer(record)

    def advance(self) -> None:
        """Decide and act on the present state; call it after every report."""
        now = time.monotonic()
        self._grant_all(now)
        if self._ledger.needs_decision(now):
            decided = self._ledger.decide(self._memory.latest(now))
            self._grant_all(now)
            self._carry_out(decided)
        for record in self._ledger.records:
            if record.model is not None and not (record.in_use or record.figures.listed):
                self._callbacks.abandon(record.key.model)  # before its actor stops, and reports nothing more
            self._stop_unused(record)
        self._ledger.forget_strangers()
        greet_newcomers(self._ledger.waiting_room, now)

    def _carry_out(self, decided: Plan) -> None:
        for key, command in commands_of(decided, self._ledger.state.models):
            self._started(self._ledger[key]).send(command)
        if decided.held_for is not None:
            self._callbacks.release_held(decided.held_for)
        for key in decided.wait:  # an opened model that has to wait is in memory no more
            self._unloads.answer(self._ledger[key])
        for refusal in decided.refused:
            record, models = self._ledger[refusal.key], self._ledger.state.models.values()
            for ticket in record.tickets.clear():
                record.fail_ticket(ticket, refusal_problem(refusal, models, ticket.allowed))
            self._fail_waiting(record, refusal_problem(refusal, models, (record.key.model,)))

    def _started(self, record: ModelRecord) -> PooledModel:
        if record.model is not None:
            return record.model
        model = self._callbacks.start(record.key, record.use.state)
        record.add_actor(model)
        if model.takes_room != record.use.takes_room:
            self._ledger.apply(ModelStarted(record.key, model.takes_room))
        return model

    def _grant_all(self, now: float) -> None:
        for record in self._ledger.records:
            while record.model is not None and (ticket := record.next_ticket(now)) is not None:
                release = partial(self._callbacks.on_lease_reduced, record)
                lease = Lease(record.key, record.model.ref, ticket, release)
                record.leases[lease] = now
                self._ledger.apply(LeaseGranted(record.key, now))
                ticket.reply.send(Granted(lease))

    def _record_use(self, record: ModelRecord, client: str, wish: KeepAlive | None, now: float) -> None:
        """Record that a client uses a model, which stays as long as all of its users want."""
        ttl = record.wishes.record_use(client, wish, record.use.usual_ttl, now)
        if ttl != record.use.ttl:
            self._ledger.apply(KeepAliveSet(record.key, ttl))

    def _fail_waiting(self, record: ModelRecord, problem: Problem) -> None:
        for ticket in record.tickets.clear():
            record.fail_ticket(ticket, problem)
        suspended = record.use.suspended
        if record.use.tickets or suspended:
            self._ledger.apply(RequestsFailed(record.key))
        record.forget_wishes()
        if suspended and record.model is not None:
            record.model.send(FailRequests(problem))

    def _stop_unused(self, record: ModelRecord) -> None:
        """Stop an actor without a place among the loaded models and without requests."""
        if record.model is None or record.use.residency is not Residency.NONE or record.in_use:
            return
        record.model.send(Stop())
        record.remove_actor()
        self._ledger.apply(ActorStopped(record.key))
