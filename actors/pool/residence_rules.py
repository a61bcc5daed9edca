"""The times that models stay in memory, by settings and wishes of users, and how often they may restart."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable

import attrs

from greenroom.engine.resources.fair_queue import address_of
from greenroom.schemas.messages.requests import KeepAlive
from greenroom.schemas.settings.settings import Settings, is_pattern

MAX_USERS = 256  # Latest users of a model whose wishes are kept; anybody may come from many addresses


@attrs.frozen
class ResidenceRule:
    """An operator's settings of one model.

    Args:
        pinned: True if it is never unloaded for others, or for being idle.
        ttl: Seconds without a request after which it is unloaded; None for never.
        preload: True if it is loaded at the start, without a request.
    """

    pinned: bool = False
    ttl: float | None = None
    preload: bool = False


def rule_for(settings: Settings, model: str) -> ResidenceRule:
    own = settings.of_model(model)
    return ResidenceRule(own.pinned is True, own.ttl, own.preload is True)


def preloads_of(settings: Settings, listed: Iterable[str]) -> tuple[str, ...]:
    """Return the names of models to load at the start, pinned ones first. `listed`: names of models to which
    patterns may apply.
    """
    names = [*(name for name, _ in settings.model_settings if not is_pattern(name)), *listed]
    rules = {name: rule_for(settings, name) for name in names}
    preloads = [name for name, rule in rules.items() if rule.preload]
    return tuple(sorted(preloads, key=lambda name: not rules[name].pinned))


def preloads_by_pattern(settings: Settings) -> bool:
    """Return whether models are to be loaded at the start whose full names are not in the settings."""
    return any(is_pattern(name) and table.preload for name, table in settings.model_settings)


class KeepAliveWishes:
    """Keeps how long the users of a model want it to stay: nobody's wish cuts the time of another user.

    A user is an address, or a checked key. Each use without a wish counts as one for the operator's setting.
    """

    def __init__(self) -> None:
        self._kept: dict[str, tuple[float, float]] = {}

    def record_use(
        self, client: str, wish: KeepAlive | None, usual: float | None, now: float
    ) -> float | None:
        """Record that a client uses the model, or has done so; return the model's time to live from now on.

        Args:
            wish: Wish of its request; None for that of an earlier one of its user.
            usual: Time to live in seconds that the operator has set; None for no limit.
        """
        user = address_of(client)
        wished = usual if wish is None else wish.seconds
        seconds = math.inf if wished is None else wished
        if wish is None and user in self._kept:
            seconds = self._kept[user][0]
        others = self._others(user, now)
        self._kept = {**dict(list(others.items())[-MAX_USERS:]), user: (seconds, now)}
        longest = max([seconds, *(sum(kept) - now for kept in others.values())])
        return None if math.isinf(longest) else longest

    def is_kept_by_others(self, client: str, now: float) -> bool:
        """Return whether another user's time is not over yet."""
        return bool(self._others(address_of(client), now))

    def clear(self) -> None:
        """Forget all wishes, since the model has left the memory."""
        self._kept = {}

    def _others(self, user: str, now: float) -> dict[str, tuple[float, float]]:
        return {each: kept for each, kept in self._kept.items() if each != user and sum(kept) > now}


class RestartIntensity:
    """The limit of failures within a period. `limit`: number of failures within one period after which the
    model is not restarted; `period`: length of the period in seconds.
    """

    def __init__(self, limit: int = 3, period: float = 60.0) -> None:
        self._limit = limit
        self._period = period
        self._failures: deque[float] = deque(maxlen=limit)

    def record_failure(self, now: float) -> None:
        self._failures.append(now)

    def seconds_left(self, now: float) -> float:
        """Return the seconds until the model may be restarted; 0 if it may be now."""
        if len(self._failures) < self._limit:
            return 0.0
        return max(0.0, self._failures[0] + self._period - now)
