"""Origins of the settings that hold for one model."""

from __future__ import annotations

from typing import Any, Literal

import attrs

from greenroom.schemas.settings.model_settings import ModelSettings, given_values
from greenroom.schemas.settings.settings import Settings

Origin = Literal["default", "file", "environment", "flag", "model", "profile"]
"""Source of a value; `model` is the model's own table, `profile` that of a profile."""


@attrs.frozen
class SettingInForce:
    """A setting's value for one model, with its origin."""

    name: str
    value: Any
    origin: Origin


def settings_in_force(
    settings: Settings, model: str, profile: str | None = None
) -> tuple[SettingInForce, ...]:
    """Return the settings that can be a model's own, as they hold for it.

    Args:
        model: Name of the model, as it is listed.
        profile: Name of the profile through which it is requested.
    """
    own, applied = given_values(settings.of_model(model)), settings.applied_to(model)
    table = settings.all_profiles.get(profile) if profile is not None else None
    of_profile = {} if table is None else given_values(table)
    sources: dict[str, Origin] = {**dict(settings.origins)}
    found: list[SettingInForce] = []
    for field in attrs.fields(ModelSettings):
        name = field.name
        if name in of_profile:
            found.append(SettingInForce(name, of_profile[name], "profile"))
        elif name in own:
            found.append(SettingInForce(name, own[name], "model"))
        else:
            origin = sources.get(name, "default")
            found.append(SettingInForce(name, getattr(applied, name, field.default), origin))
    return tuple(found)
