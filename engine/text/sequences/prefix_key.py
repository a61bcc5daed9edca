"""Keys of cached prefixes within the cache of one model."""

from __future__ import annotations

import attrs


@attrs.frozen
class PrefixKey:
    """Key of a cached prefix: the weights that computed it, and the group of clients that may reuse it.

    Args:
        adapter: Name of the LoRA adapter applied to the base model; None for the base model alone.
        salt: Name of the group of clients that share the prefix; empty for all (vLLM's `cache_salt`).
    """

    adapter: str | None = None
    salt: str = ""

    @property
    def is_common(self) -> bool:
        """True if everybody's requests without an adapter share the prefix, so that it may be stored."""
        return self == PrefixKey()
