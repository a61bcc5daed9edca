"""Draft models of models, by the names in the settings."""

from __future__ import annotations

from pathlib import Path

from greenroom.schemas.settings.settings import Settings


def missing_draft(settings: Settings) -> str | None:
    """Return the hub id of a model's draft model that is not on this machine; None if nothing is missing."""
    from greenroom.engine.catalog.entries import resolve_folder

    draft, drafts = settings.draft_model, settings.speculation in (None, "draft")
    if draft is None or not drafts or resolve_folder(draft) is not None:
        return None
    return draft if draft_folder(settings) is None else None


def draft_folder(settings: Settings) -> Path | None:
    """Return the folder of a model's draft model; None if there is none."""
    from greenroom.engine.catalog.entries import local_folder

    drafts = settings.speculation in (None, "draft")
    try:
        return local_folder(settings.draft_model) if settings.draft_model and drafts else None
    except (OSError, ValueError):
        return None
