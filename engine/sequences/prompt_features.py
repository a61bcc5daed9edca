"""What the tokens of a prompt do not say, and the model has to be given beside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from greenroom.schemas.prepared_input import PreparedPrompt


class PromptFeatures(Protocol):
    """Inputs of a model that are computed beside its tokens, such as those of images (`engine.vision`).

    They may take long, so they are computed piece by piece, each when the prompt has come so far.
    """

    @property
    def keys(self) -> Sequence[int]:
        """A number for each token of the prompt: equal ones are computed alike, behind an equal beginning."""

    @property
    def position_shift(self) -> int:
        """What the position of a token behind the prompt is more than its place."""

    @property
    def image_tokens(self) -> int:
        """Tokens that stand for images."""

    @property
    def nbytes(self) -> int:
        """Bytes of memory for what is computed, and meanwhile."""

    def ready(self, start: int) -> int:
        """Return how many tokens from that one on can be computed; 0 if `compute` comes first."""

    def chunk(self, start: int, count: int) -> int:
        """Return how many tokens from that one on are computed at once, if about so many shall be."""

    def compute(self, start: int, milliseconds: float) -> None:
        """Compute what the tokens from that one on need, for about so long: a piece at least.

        Raises:
            ProblemError: The model cannot take it.
        """

    def arguments(self, start: int, stop: int) -> dict[str, Any]:
        """Return what the model is called with beside those tokens, which are ready, and their cache."""


class FeatureSource(Protocol):
    """Gives the prompts of a model their features, and may keep some for prompts to come."""

    @property
    def nbytes(self) -> int:
        """Bytes that it keeps."""

    def evict_to(self, nbytes: int) -> None:
        """Keep no more than so many bytes."""

    def charge_with(self, reserve: Callable[[int], int]) -> None:
        """Have what is kept charged: of the bytes that are wanted, `reserve` returns how many there are."""

    def open(self, prepared: PreparedPrompt) -> PromptFeatures | None:
        """Return the features of a prompt; None if its tokens say all.

        Raises:
            ProblemError: The model cannot take the prompt.
        """
