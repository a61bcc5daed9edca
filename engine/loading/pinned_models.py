"""The check at the start that pinned models fit into memory together."""

from __future__ import annotations

from greenroom.engine.catalog.catalog import Catalog
from greenroom.engine.catalog.kinds.detection import detect
from greenroom.engine.loading.devices import use_device
from greenroom.engine.loading.load_size import load_size
from greenroom.engine.memory.device_memory import default_memory
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.settings.settings import Settings


def why_pins_do_not_fit(settings: Settings) -> str | None:
    """Return a description of the pinned models' sizes if they exceed the memory together; None if they fit.

    Models without local files or of unknown size do not count: their loads will tell.
    """
    if not any(table.pinned for _, table in settings.model_settings):
        return None
    sizes = _pinned_sizes(settings)
    total, limit = sum(sizes.values()), settings.memory_bytes
    if limit is None and sizes:
        try:
            use_device(settings)
        except ProblemError:  # as the loads will tell
            return None
        limit = default_memory()
    if limit is None or total <= limit:
        return None
    each = ", ".join(f"{name} {nbytes:,}" for name, nbytes in sizes.items())
    return f"pinned models need {total:,} bytes together ({each}), but models can have {limit:,}"


def _pinned_sizes(settings: Settings) -> dict[str, int]:
    """Return the least bytes that each pinned model with local files needs, by name."""
    catalog = Catalog.of(settings)
    sizes: dict[str, int] = {}
    for entry in catalog.entries():
        if entry.folder is None or not settings.of_model(entry.id).pinned:
            continue
        own = settings.applied_to(entry.id)
        try:
            record = detect(entry.folder, own.trust_remote_code, entry.id)
            sizes[entry.id] = load_size(entry.folder, record, own).least
        except (ProblemError, OSError, ValueError):
            continue
    return sizes
