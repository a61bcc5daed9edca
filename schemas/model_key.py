"""Keys that identify a model in messages, leases and caches."""

from __future__ import annotations

import attrs


@attrs.frozen
class ModelKey:
    """A model together with the LoRA adapter applied to it.

    Keys with different adapters never share a cache entry.

    Args:
        model: Public id: a hub id (`org/name`) or the name of a local folder.
        adapter: Id of the adapter; None for the bare model.
    """

    model: str
    adapter: str | None = None

    def __str__(self) -> str:
        return self.model if self.adapter is None else f"{self.model}+{self.adapter}"
