"""Copies of models: profiles that clients of Ollama's protocol have made while a server ran."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from greenroom.schemas.settings.profiles import Profile
from greenroom.schemas.settings.settings import Settings


@attrs.frozen
class ModelCopy:
    """A further name of a model, with the generation defaults of the profile that was copied, if any.

    Args:
        name: Name under which it is listed, without `:latest`.
    """

    name: str
    profile: Profile


def with_copies(settings: Settings, copies: Iterable[ModelCopy]) -> Settings:
    """Return settings with copies as further profiles; a profile of the operator's precedes a copy."""
    taken = {name.removesuffix(":latest") for name, _ in settings.profiles}
    further = tuple((copy.name, copy.profile) for copy in copies if copy.name not in taken)
    return attrs.evolve(settings, profiles=(*settings.profiles, *further)) if further else settings
