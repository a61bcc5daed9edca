"""The models of routes: what is known of each, and which one is asked."""

from __future__ import annotations

import time
from typing import Any

import attrs

from greenroom.actors.pool.model_record import ModelRecord
from greenroom.actors.pool.pool_overview import PoolOverview
from greenroom.actors.remotes.remote_servers import RemoteServers
from greenroom.actors.remotes.routing import Candidate, Wish, decide
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.problems import Problem
from greenroom.schemas.protocols.pool_protocol import Acquire, ModelName, NamedMessage, QueryPrompt
from greenroom.schemas.settings.settings import Settings


class Routes:
    """Chooses a model for each request by the name of a route, and keeps requests that must stay here.

    Args:
        log: Logger of the pool.
    """

    def __init__(self, settings: Settings, remotes: RemoteServers, overview: PoolOverview, log: Any) -> None:
        self._rules, self._remotes, self._overview, self._log = settings.all_routes, remotes, overview, log

    def settle(self, found: ModelName, message: NamedMessage) -> ModelName | Problem:
        """Return the model that is asked, or the reason why none is."""
        stays = _why_it_stays(message)
        if not found.candidates:
            is_far = self._remotes.place(found.model) is not None
            return _refusal(found.model, stays, message) if is_far and stays else found
        rule = self._rules[found.route or ""]
        tried = message.without if isinstance(message, Acquire | QueryPrompt) else ()
        wish = Wish(rule.prefer, rule.max_wait, stays, tried)
        now = time.monotonic()
        decision = decide([self._candidate(model, now) for model in found.candidates], wish)
        if not decision.order:
            return _refusal(found.route or "", decision.text, message)
        model, _ = decision.order[0]
        if isinstance(message, Acquire):
            names = {"route": found.route, "model": model}
            self._log.info("routed", request_id=message.request_id, **names, chosen=decision.text)
        # A query whose prompt is refused here then learns that a remote would be asked.
        is_mixed = isinstance(message, QueryPrompt) and any(map(self._remotes.place, found.candidates))
        replaceable = is_mixed or len(decision.order) > 1
        return attrs.evolve(found, model=model, replaceable=replaceable, chosen=decision.text)

    def _candidate(self, model: str, now: float) -> Candidate:
        record = self._overview.record_of(ModelKey(model))
        used = record.used_slots + sum(ticket.slots for ticket in record.tickets)
        is_far = self._remotes.place(model) is not None
        return self._remotes.candidate(model, used) if is_far else _of_here(record, used, now)


def _of_here(record: ModelRecord, used: int, now: float) -> Candidate:
    """Return the facts about a model of this machine, of which so many slots are used or waited for."""
    ahead = used - record.model_slots + 1
    wait: float | None = 0.0
    if ahead > 0:
        # An engine may admit requests beyond its slots, which then wait inside.
        held = record.waiting_time.rest(0.0)
        wait = None if held is None else held * ahead / record.model_slots
    elif record.loading:
        eta = record.eta_of_next(now)
        wait = None if eta is None else eta / 1_000
    refusal = record.refusal(now)
    fault = "" if refusal is None else f"cannot answer ({refusal.code})"
    return Candidate(record.key.model, loaded=record.use.ready, wait=wait, full=ahead > 0, fault=fault)


def _why_it_stays(message: NamedMessage) -> str:
    match message:
        case Acquire(stays=stays):
            return stays
        case QueryPrompt():
            return "prompts are counted and shown by models of this machine alone"
    return ""


def _refusal(name: str, why: str, message: NamedMessage) -> Problem:
    code = "remote_prompt" if isinstance(message, QueryPrompt) else "may_not_leave"
    return Problem(403, code, f"'{name}' cannot answer this request: {why}.", "model")
