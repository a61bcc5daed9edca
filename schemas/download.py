"""A model that is about to be fetched from the hub."""

from __future__ import annotations

import attrs


@attrs.frozen
class Download:
    """What of a model is not on this machine yet.

    Args:
        files: How many there are.
        nbytes: Of all of them.
        source: Address of the hub.
        folder: Of the hub's cache, where they will lie.
    """

    model: str
    files: int
    nbytes: int
    source: str
    folder: str
