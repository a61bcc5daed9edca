"""Measured working space of models: the temporary memory of their steps."""

from __future__ import annotations

import attrs


@attrs.frozen
class WorkingSpace:
    """The working space measured at a model's last load.

    Args:
        model_id: The model's own id.
        nbytes: Bytes that steps took beyond weights and caches.
        stamp: Text that changes with the model's files and the settings on which the bytes depend.
    """

    model_id: str
    nbytes: int
    stamp: str
