"""Prompts given as embeddings instead of tokens: the simplest form of prompt features."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import mlx.core as mx

from greenroom.schemas.messages.prepared_input import PreparedPrompt

_numbers = itertools.count(1 << 20)
"""Source of stand-in token ids; no two embedded tokens share one."""


@attrs.define(eq=False)
class EmbeddedPrompt:
    """`PromptFeatures` of a prompt given as embeddings; the last token is decoded from its id.

    Args:
        embeddings: Embeddings `[prompt, hidden]`.
    """

    tokens: Sequence[int]
    embeddings: mx.array
    keys: list[int] = attrs.field(
        default=attrs.Factory(lambda self: [next(_numbers) for _ in self.tokens], takes_self=True)
    )
    position_shift: int = 0
    image_tokens: int = 0
    reused_tokens: int = 0

    @property
    def nbytes(self) -> int:
        return self.embeddings.nbytes

    def ready(self, start: int) -> int:
        embedded = len(self.embeddings) - 1
        return embedded - start if start < embedded else 1 << 30

    def chunk(self, start: int, count: int) -> int:
        return count

    def compute(self, start: int, milliseconds: float) -> None:
        raise AssertionError("all is ready")

    def arguments(self, start: int, stop: int) -> dict[str, Any]:
        if start >= len(self.embeddings) - 1:  # later tokens are given by id
            return {}
        return {"input_embeddings": self.embeddings[start:stop][None]}


@attrs.define
class EmbeddedPrompts:
    """A `FeatureSource` that keeps nothing.

    Args:
        embeddings: Embeddings of the next submitted prompt; None for a prompt of tokens.
    """

    embeddings: Any = None
    nbytes: int = 0

    def evict_to(self, nbytes: int) -> None:
        assert nbytes == 0

    def charge_with(self, reserve: Callable[[int], int]) -> None:
        pass

    def open(self, prepared: PreparedPrompt) -> EmbeddedPrompt | None:
        return None if self.embeddings is None else EmbeddedPrompt(prepared.tokens, self.embeddings)
