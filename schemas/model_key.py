"""Keys that identify a model in messages and leases."""

from __future__ import annotations

import attrs


@attrs.frozen
class ModelKey:
    """A base model. Requests with different LoRA adapters share it, and its place in memory.

    Args:
        model: Public id: a hub id (`org/name`) or the name of a local folder.
    """

    model: str

    def __str__(self) -> str:
        return self.model
