"""Changes of settings that a running server can apply, and those that need a new process."""

from __future__ import annotations

import attrs

from greenroom.schemas.settings.settings import Settings

RELOADABLE = (
    "models",
    "model_dir",
    "default",
    "model_settings",
    "profiles",
    "allowed_hosts",
    "allowed_origins",
    "log_level",
)
"""Settings that a running server takes in."""


@attrs.frozen
class SettingsChange:
    """The difference between the current settings and those that were read again.

    Args:
        settings: Settings to apply: those that need a new process stay as they are.
        applied: Names of the changed settings that a running server applies.
        needs_restart: Names of the changed settings that need a new process.
    """

    settings: Settings
    applied: tuple[str, ...]
    needs_restart: tuple[str, ...]


def compare(before: Settings, read: Settings) -> SettingsChange:
    """Return the difference between the current settings and those that were read again."""
    names = sorted(attrs.fields_dict(Settings).keys() - {"origins"})
    changed = [name for name in names if getattr(before, name) != getattr(read, name)]
    applied = tuple(name for name in changed if name in RELOADABLE)
    taken = {name: getattr(read, name) for name in applied}
    origins = {**dict(before.origins)}
    for name in applied:
        origins.pop(name, None)
    origins |= {name: source for name, source in read.origins if name in applied}
    settings = attrs.evolve(before, **taken, origins=tuple(origins.items()))
    return SettingsChange(settings, applied, tuple(name for name in changed if name not in RELOADABLE))


def opens_otherwise(before: Settings, now: Settings, model: str) -> bool:
    """Return whether a model's files must be read again to apply its changed settings.

    Names and residence in memory are not part of an opened model.
    """
    old, new = (
        attrs.evolve(settings.of_model(model), alias=(), pinned=None, preload=None, ttl=None)
        for settings in (before, now)
    )
    return old != new
