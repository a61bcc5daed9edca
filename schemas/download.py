"""A model that is about to be fetched from the hub."""

from __future__ import annotations

import attrs


@attrs.frozen
class Download:
    """The missing files of a model, before their download.

    Args:
        files: Number of files.
        nbytes: Size of all files, in bytes.
        source: Address of the hub.
        folder: Folder of the hub's cache that will hold them.
    """

    model: str
    files: int
    nbytes: int
    source: str
    folder: str
