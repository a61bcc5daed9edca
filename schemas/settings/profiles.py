"""Profiles: further names of a model, each with generation defaults of its own."""

from __future__ import annotations

import attrs

from greenroom.schemas.settings.generation_defaults import GenerationDefaults
from greenroom.schemas.settings.model_settings import given_values
from greenroom.schemas.settings.setting_fields import setting


@attrs.frozen
class Profile(GenerationDefaults):
    """A name under which a model is listed once more, with defaults for requests by that name."""

    model: str = setting("", "Name of the model, as it is listed.")


ProfileTables = tuple[tuple[str, Profile], ...]
"""Pairs of a profile's name and its settings."""


def merge_profiles(tables: ProfileTables) -> dict[str, Profile]:
    """Return profiles by name; of several tables with one name, the first that sets a value decides it."""
    merged: dict[str, dict[str, object]] = {}
    for name, table in tables:
        given = {key: value for key, value in given_values(table).items() if value != ""}
        merged[name] = {**given, **merged.get(name, {})}
    return {name: Profile(**values) for name, values in merged.items()}  # type: ignore[arg-type]
