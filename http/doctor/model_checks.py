"""Examine the models: those that cannot be loaded, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from greenroom.http.doctor.finding import Finding
from greenroom.schemas.protocols.download_protocol import size_text


def check_models(rows: list[dict[str, Any]], named: Collection[str], hub_cache: Path) -> Iterator[Finding]:
    """Yield a finding for each model that cannot be loaded, and one with the number of the others.

    A model that lies in the hub's cache and that no setting names is no fault: other programs put theirs
    there too.

    Args:
        rows: Descriptions of the models, as `greenroom models --json` has them.
        named: Names that the operator has given.
        hub_cache: Folder of downloaded models.
    """
    counts: Counter[str] = Counter()
    for row in rows:
        name, folder = row["id"], row["folder"]
        if row["problem"]:
            foreign = folder is not None and Path(folder).is_relative_to(hub_cache) and name not in named
            yield Finding("model", f"{name}: {row['problem']}", wrong=not foreign)
        elif folder is None:
            yield Finding("model", f"{name}: not on this machine; it is downloaded when it is needed")
        elif row["fits"] is False:
            least = size_text(row["least_bytes"] or 0)
            yield Finding(
                "model", f"{name}: needs at least {least}, more than models may have", name in named
            )
        else:
            counts[row["type"] or "unknown"] += 1
    usable = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())) or "none"
    yield Finding("models", f"that can be loaded: {usable}")
