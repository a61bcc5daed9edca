"""What models that read whole texts at once compute with, and what they make of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import attrs
import numpy as np
from numpy.typing import NDArray

from greenroom.schemas.events.events import InferenceEvent
from greenroom.schemas.messages.prepared_input import SingleAnswerInput

Tokens = NDArray[np.int32]
"""Token ids, `[length]`; any thread may hold them."""
Values = NDArray[np.float32]
"""What a model makes of rows, `[rows, width]`."""


@attrs.frozen(eq=False)
class Row:
    """One text, or a pair of them, as the model reads it.

    Args:
        tokens: With those that the model wants around them.
        second: Where the second text of a pair begins, for models whose tokens have types.
        instructed: Tokens at the beginning that tell what the text is for.
    """

    tokens: Tokens
    second: int | None = None
    instructed: int = 0


@attrs.frozen(eq=False)
class PreparedRows(SingleAnswerInput):
    """A request whose texts are rows: each is computed for itself, and has one event of its index.

    Args:
        shared: Tokens that all rows begin with, where a model can compute those once.
        param: What the client calls the texts, for errors.
    """

    rows: tuple[Row, ...]
    shared: int = attrs.field(default=0, kw_only=True)
    param: str = attrs.field(default="input", kw_only=True)

    @property
    def prompt_tokens(self) -> int:
        """Tokens of all rows together."""
        return sum(len(row.tokens) for row in self.rows)


class RowModel(Protocol):
    """A loaded model that takes rows, on its one thread."""

    def compute(self, rows: Sequence[Row]) -> Values:
        """Return what the model makes of rows in one forward pass; each as if it were computed alone."""

    def event(self, prepared: Any, index: int, values: Values) -> InferenceEvent:
        """Return what a request gets for its row `index`, of which the model made `values`.

        Raises:
            ProblemError: They cannot be answered.
        """

    def batch_bytes(self, rows: int, width: int) -> int:
        """Return what a forward pass takes beside the weights, for so many rows of at most that length."""


def common_beginning(rows: Sequence[Row]) -> int:
    """Return how many tokens all rows begin with; each has at least one more."""
    first = rows[0].tokens
    shared = min(len(row.tokens) for row in rows) - 1
    for row in rows[1:]:
        differs = first[:shared] != row.tokens[:shared]
        if differs.any():
            shared = int(differs.argmax())
    return shared


def pad(rows: Sequence[Tokens], padding: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return token ids `[rows, width]`, padded on the right, and the mask that is 1 where a token is."""
    width = max(map(len, rows))
    ids = np.full((len(rows), width), padding, np.int32)
    mask = np.zeros((len(rows), width), np.int32)
    for at, row in enumerate(rows):
        ids[at, : len(row)] = row
        mask[at, : len(row)] = 1
    return ids, mask
