"""Check that a command's model has the right type, before loading it."""

from __future__ import annotations

import click

from greenroom.http.commands.local_models import LocalModels
from greenroom.schemas.models.capabilities import ModelType
from greenroom.schemas.settings.settings import Settings


def check_kind(
    local: LocalModels, settings: Settings, kind: ModelType, model: str | None, place: str = "-m"
) -> None:
    """Refuse a first model that is known to have another type; a model not yet downloaded may have any.

    Args:
        model: Name of the model on the command line, if given.
        place: Option or argument that names the model, for errors.

    Raises:
        UsageError: Its message gives the model's purpose, and the way to name another.
    """
    found = local.find_kind(settings)
    if found is None or found == kind:
        return

    from greenroom.schemas.models.kinds import PURPOSES

    wanted = f"name one for {PURPOSES[kind]} with {place}, a local folder or a hub id"
    if model is not None:
        raise click.UsageError(f"'{model}' is a model for {PURPOSES[found]}: {wanted}")
    if settings.models:
        first = f"'{settings.models[0]}', the first model of the settings, is for {PURPOSES[found]}"
        raise click.UsageError(f"no model is named, and {first}: {wanted}")
    raise click.UsageError(
        f"no model is named, and the built-in demo model is for {PURPOSES[found]}: {wanted}"
    )
