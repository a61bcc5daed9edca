"""Keys of cached prefixes within the cache of one model."""

from __future__ import annotations

import attrs


@attrs.frozen
class PrefixKey:
    """The weights that compute a prefix. Prefixes with different keys are never shared.

    Args:
        adapter: Name of the LoRA adapter applied to the base model; None for the base model alone.
    """

    adapter: str | None = None
