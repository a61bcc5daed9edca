"""Marks of models in the hub's cache that were fetched to be probed, and were not probed yet."""

from __future__ import annotations

import contextlib
from pathlib import Path

from greenroom.engine.catalog.hub.hub_cache import HUB_ID, hub_cache_folder, model_folder

_NAME = ".greenroom-unprobed"


def mark_for_probe(hub_id: str) -> None:
    """Let the model's first load in a server be followed by a probe; without effect if it is not cached."""
    with contextlib.suppress(OSError):
        _mark(hub_id).touch()


def is_marked(hub_id: str) -> bool:
    """Return whether a model's next load in a server is followed by a probe."""
    return bool(HUB_ID.fullmatch(hub_id)) and _mark(hub_id).exists()


def unmark(hub_id: str) -> bool:
    """Remove a model's mark, and return whether it had one."""
    if not HUB_ID.fullmatch(hub_id):
        return False
    try:
        _mark(hub_id).unlink()
    except OSError:
        return False
    return True


def _mark(hub_id: str) -> Path:
    return model_folder(hub_id, hub_cache_folder()) / _NAME
