"""Model inputs beside a prompt's tokens, such as image features, and the keys of their prefixes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import attrs

from greenroom.schemas.messages.prepared_input import PreparedPrompt


class PromptFeatures(Protocol):
    """Model inputs computed beside the tokens, such as those of images (`engine.vision`).

    They can take long, so they are computed piece by piece as prefill reaches them.
    """

    @property
    def keys(self) -> Sequence[int]:
        """Cache key of each prompt token; equal keys after an equal prefix give equal caches."""

    @property
    def position_shift(self) -> int:
        """Offset from cache index to position id for tokens after the prompt."""

    @property
    def image_tokens(self) -> int:
        """Number of tokens that stand for images."""

    @property
    def reused_tokens(self) -> int:
        """Number of tokens of images whose features were computed for an earlier prompt."""

    @property
    def nbytes(self) -> int:
        """Bytes of memory for the features, including temporary memory."""

    def ready(self, start: int) -> int:
        """Return the number of tokens from `start` that can be prefilled; 0 if `compute` must run first."""

    def chunk(self, start: int, count: int) -> int:
        """Return the size of the prefill chunk at `start`, given a wish for `count` tokens."""

    def compute(self, start: int, milliseconds: float) -> None:
        """Compute features for the tokens from `start`, for about this long; at least one piece. Raises
        ProblemError: the model cannot take the input.
        """

    def arguments(self, start: int, stop: int) -> dict[str, Any]:
        """Return the additional model arguments for a chunk of tokens that are ready."""


class FeatureSource(Protocol):
    """Source of a model's prompt features, which may cache some for later prompts."""

    @property
    def nbytes(self) -> int:
        """Bytes of cached features."""

    def evict_to(self, nbytes: int) -> None:
        """Evict cached features until at most `nbytes` are left."""

    def charge_with(self, reserve: Callable[[int], int]) -> None:
        """Set the function that charges for cached features: it takes bytes and returns those granted."""

    def open(self, prepared: PreparedPrompt) -> PromptFeatures | None:
        """Return the features of a prompt; None if it consists of tokens only. Raises ProblemError: the model
        cannot take the prompt.
        """


@attrs.frozen
class PrefixKey:
    """Key of a cached prefix: the weights that computed it, and the group of clients that may reuse it.

    Args:
        adapter: Digest and scale of the LoRA adapter applied to the base model; None for the base alone.
        salt: Name of the group of clients that share the prefix; empty for all (vLLM's `cache_salt`).
    """

    adapter: str | None = None
    salt: str = ""

    @property
    def is_common(self) -> bool:
        """True if everybody's requests share the prefix, so that it may be stored."""
        return not self.salt

    @property
    def origin(self) -> bytes:
        """Key of the hashes of stored prefixes; empty for those of the base."""
        return (self.adapter or "").encode()
