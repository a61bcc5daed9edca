"""The choice between models of this machine and of remotes, as one function of what is known of each."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import Any

import attrs

from greenroom.actors.pool.model_record import ModelRecord
from greenroom.actors.pool.pool_overview import PoolOverview
from greenroom.actors.remotes.remote_servers import RemoteServers
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.problems import Problem
from greenroom.schemas.protocols.pool_protocol import Acquire, ModelName, NamedMessage, QueryPrompt
from greenroom.schemas.settings.remotes import Route
from greenroom.schemas.settings.settings import Settings

MAX_TEXT = 1_000
"""Most characters of a decision that is told."""


@attrs.frozen
class Candidate:
    """A model that may answer a request, as it is known now.

    Args:
        remote: Name of its remote; empty for a model of this machine.
        cost: Price of its remote; 0 for this machine.
        loaded: True if it is known to be in memory.
        wait: Estimated seconds until a request begins; None if unknown.
        full: True if a further request would have to wait.
        fault: Reason why it cannot answer now; empty if there is none.
    """

    model: str
    remote: str = ""
    cost: float = 0.0
    loaded: bool = False
    wait: float | None = 0.0
    full: bool = False
    fault: str = ""


@attrs.frozen
class Decision:
    """The order in which models are asked, with the reason of each place.

    Args:
        order: Pairs of a model and a reason; the first is asked now.
        left_out: Likewise for the models that are not asked at all.
    """

    order: tuple[tuple[str, str], ...]
    left_out: tuple[tuple[str, str], ...] = ()

    @property
    def text(self) -> str:
        """The decision in one line of a bounded length, for records and for people."""
        listed = [f"{model}: {why}" for model, why in (*self.order, *self.left_out)]
        return "; ".join(listed)[:MAX_TEXT]


_NO_PROMPTS = "prompts are counted and shown by models of this machine alone"
_PREFERRED = {"order": "comes first", "cheapest": "is the cheapest", "loaded": "is loaded, or waits least"}


def decide(
    candidates: Sequence[Candidate], rule: Route, stays: str = "", tried: Collection[str] = ()
) -> Decision:
    """Return the order in which models are asked.

    Models that may not answer are left out. Of the others, those without a fault precede those with one, and
    those that begin within the longest wait precede those that do not; then the preference decides, and at
    last the order of the route.

    Args:
        stays: Reason why the request must not leave this machine; empty if it may.
        tried: Models that could not answer it.
    """
    kept: list[tuple[tuple[float, ...], int, str, str]] = []
    left_out: list[tuple[str, str]] = []
    for place, each in enumerate(candidates):
        why = "has failed for this request" if each.model in tried else stays if each.remote else ""
        if why:
            left_out.append((each.model, why))
            continue
        late = "" if rule.max_wait is None else _lateness(each, rule.max_wait)
        ranks = {"cheapest": (each.cost,), "loaded": (not each.loaded, each.full, each.wait or 0.0)}
        rank = (bool(each.fault), bool(late), *ranks.get(rule.prefer, ()))
        kept.append((rank, place, each.model, each.fault or late))
    kept.sort()
    order = [(model, why or "comes next") for _, _, model, why in kept]
    if kept and not kept[0][3]:
        _, place, first, _ = kept[0]
        skipped = {model for _, _, model, why in kept if why} | {model for model, _ in left_out}
        behind = [each.model for each in candidates[:place] if each.model in skipped]
        order[0] = first, f"takes the place of {', '.join(behind)}" if behind else _PREFERRED[rule.prefer]
    return Decision(tuple(order), tuple(left_out))


def _lateness(each: Candidate, most: float) -> str:
    """Return the reason why a model would begin too late; empty if it would not."""
    if each.wait is None:  # a full model without a history may keep a request waiting for any time
        return "is full" if each.full else ""
    return f"would begin in {each.wait:.1f} s" if each.wait > most else ""


class Routes:
    """Chooses a model for each request by the name of a route, and keeps requests that must stay here.

    Args:
        log: Logger of the pool.
    """

    def __init__(self, settings: Settings, remotes: RemoteServers, overview: PoolOverview, log: Any) -> None:
        self._rules, self._remotes, self._overview, self._log = settings.all_routes, remotes, overview, log

    def settle(self, found: ModelName, message: NamedMessage) -> ModelName | Problem:
        """Return the model that is asked, or the reason why none is."""
        stays = message.stays if isinstance(message, Acquire) else ""
        stays = _NO_PROMPTS if isinstance(message, QueryPrompt) else stays
        if not found.candidates:
            is_far = self._remotes.place(found.model) is not None
            return _refusal(found.model, stays, message) if is_far and stays else found
        tried = message.without if isinstance(message, Acquire | QueryPrompt) else ()
        known = [self._candidate(model, time.monotonic()) for model in found.candidates]
        decision = decide(known, self._rules[found.route or ""], stays, tried)
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
        if (place := self._remotes.place(model)) is None:
            return _of_here(record, used, now)
        server, known = place[0], (place[0].models or {}).get(model.partition("/")[2])
        full = max(server.running, used) >= server.remote.slots or (known is not None and known.waiting > 0)
        facts = known is not None and known.loaded, None if full else 0.0, full, server.fault(now)
        return Candidate(model, server.name, server.remote.cost, *facts)


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


def _refusal(name: str, why: str, message: NamedMessage) -> Problem:
    code = "remote_prompt" if isinstance(message, QueryPrompt) else "may_not_leave"
    return Problem(403, code, f"'{name}' cannot answer this request: {why}.", "model")
