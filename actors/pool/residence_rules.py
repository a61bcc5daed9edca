"""The operator's settings of how long models stay in memory."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from greenroom.schemas.settings.name_patterns import is_pattern
from greenroom.schemas.settings.settings import Settings


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
    """Return the operator's settings of a model, by its own name."""
    own = settings.of_model(model)
    return ResidenceRule(own.pinned is True, own.ttl, own.preload is True)


def preloads_of(settings: Settings, listed: Iterable[str]) -> tuple[str, ...]:
    """Return the names of models to load at the start, pinned ones first.

    Args:
        listed: Names of models to which patterns may apply.
    """
    names = [*(name for name, _ in settings.model_settings if not is_pattern(name)), *listed]
    rules = {name: rule_for(settings, name) for name in names}
    preloads = [name for name, rule in rules.items() if rule.preload]
    return tuple(sorted(preloads, key=lambda name: not rules[name].pinned))


def preloads_by_pattern(settings: Settings) -> bool:
    """Return whether models are to be loaded at the start whose full names are not in the settings."""
    return any(is_pattern(name) and table.preload for name, table in settings.model_settings)
