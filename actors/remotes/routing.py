"""The choice between models of this machine and of remotes, as one function of what is known of each."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from greenroom.schemas.settings.remotes import Preference

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
class Wish:
    """The request and its rule.

    Args:
        prefer: Preference of the route.
        max_wait: Seconds of waiting above which the next model is better; None for no limit.
        stays: Reason why the request must not leave this machine; empty if it may.
        tried: Models that could not answer it.
    """

    prefer: Preference = "order"
    max_wait: float | None = None
    stays: str = ""
    tried: tuple[str, ...] = ()


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


_PREFERRED = {"order": "comes first", "cheapest": "is the cheapest", "loaded": "is loaded, or waits least"}


def decide(candidates: Sequence[Candidate], wish: Wish) -> Decision:
    """Return the order in which models are asked.

    Models that may not answer are left out. Of the others, those without a fault precede those with one, and
    those that begin within the longest wait precede those that do not; then the preference decides, and at
    last the order of the route.
    """
    kept: list[tuple[tuple[float, ...], str, str]] = []
    left_out: list[tuple[str, str]] = []
    for place, each in enumerate(candidates):
        if each.model in wish.tried or (each.remote and wish.stays):
            why = "has failed for this request" if each.model in wish.tried else wish.stays
            left_out.append((each.model, why))
            continue
        late = _lateness(each, wish)
        rank = (bool(each.fault), bool(late), *_preference(each, wish.prefer), place)
        kept.append((rank, each.model, each.fault or late))
    kept.sort()
    order = [(model, why or ("comes next" if at else "")) for at, (_, model, why) in enumerate(kept)]
    if order and not order[0][1]:
        passed = {model for _, model, why in kept if why}
        at = next(at for at, each in enumerate(candidates) if each.model == order[0][0])
        skipped = passed | {model for model, _ in left_out}
        behind = [each.model for each in candidates[:at] if each.model in skipped]
        why = f"takes the place of {', '.join(behind)}" if behind else _PREFERRED[wish.prefer]
        order[0] = order[0][0], why
    return Decision(tuple(order), tuple(left_out))


def _lateness(each: Candidate, wish: Wish) -> str:
    """Return the reason why a model would begin too late; empty if it would not."""
    if wish.max_wait is None:
        return ""
    if each.wait is None:  # a full model without a history may keep a request waiting for any time
        return "is full" if each.full else ""
    return f"would begin in {each.wait:.1f} s" if each.wait > wish.max_wait else ""


def _preference(each: Candidate, prefer: Preference) -> tuple[float, ...]:
    match prefer:
        case "cheapest":
            return (each.cost,)
        case "loaded":
            return not each.loaded, each.full, each.wait or 0.0
        case _:
            return ()
