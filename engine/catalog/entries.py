"""Entries of the catalog, and the folders that an operator's names of models mean."""

from __future__ import annotations

import os
from pathlib import Path

import attrs

from greenroom.engine.catalog.files.fingerprint import fingerprint
from greenroom.engine.catalog.hub.hub_cache import HUB_ID, find_cached_model, hub_cache_folder

DEMO_ID = "greenroom-demo"
DEMO_FOLDER = Path(__file__).parents[1] / "demo" / "model"


@attrs.frozen
class CatalogEntry:
    """A model that clients can request.

    Args:
        id: Public id.
        folder: Folder of its files; None if they are not downloaded yet.
        created: Unix time in seconds of its configuration file.
        owned_by: Owner, as reported to clients.
        hub_id: Hub id to download it from; None for a local folder.
        stamp: Fingerprint of its files; empty if they are not downloaded yet.
        profile: Name of the profile through which it was found; None for the model itself.
        unlisted: True if a request named it, and no operator.
        by_default: True if it was found as the model that `default` means.
    """

    id: str
    folder: Path | None
    created: int = 0
    owned_by: str = "greenroom"
    hub_id: str | None = None
    stamp: str = attrs.field(default="", eq=False, repr=False)
    profile: str | None = None
    unlisted: bool = False
    by_default: bool = attrs.field(default=False, eq=False, repr=False)


def entry_of_folder(folder: Path, model: str) -> CatalogEntry:
    owner = model.partition("/")[0] if "/" in model else "greenroom"
    return CatalogEntry(model, folder, _modified_at(folder), owner, stamp=fingerprint(folder))


def entry_of_hub_id(hub_id: str, folder: Path | None, stamp: str | None = None) -> CatalogEntry:
    """Return the entry of a model from the hub.

    Args:
        stamp: Fingerprint of its files, if it is known already.
    """
    created = _modified_at(folder) if folder is not None else 0
    if stamp is None:
        stamp = fingerprint(folder) if folder is not None else ""
    return CatalogEntry(hub_id, folder, created, hub_id.partition("/")[0], hub_id, stamp)


def local_folder(model: str) -> Path | None:
    """Return the folder of a model by an operator's name for it; None if it is not downloaded yet."""
    return resolve_folder(model) or find_cached_model(model, hub_cache_folder())


def resolve_folder(model: str) -> Path | None:
    """Return the folder for an operator's name of a model; None if it is a hub id."""
    path = Path(os.path.abspath(Path(model).expanduser()))
    if path.is_dir():
        return path
    if model == DEMO_ID:
        return DEMO_FOLDER
    return None if HUB_ID.fullmatch(model) else path


def _modified_at(folder: Path) -> int:
    try:
        return max(0, int((folder / "config.json").stat().st_mtime))
    except OSError:
        return 0
