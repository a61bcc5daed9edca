"""The inputs and outputs of models that read whole texts at once: rows of tokens, rows of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import attrs
import numpy as np
from numpy.typing import NDArray

from greenroom.schemas.events.events import InferenceEvent
from greenroom.schemas.messages.prepared_input import SingleAnswerInput

Tokens = NDArray[np.int32]
"""Token ids, `[length]`; not confined to a thread."""
Values = NDArray[np.float32]
"""A model's outputs for rows, `[rows, width]`."""


@attrs.frozen(eq=False)
class Row:
    """A text, or a pair of texts, as the model reads it.

    Args:
        tokens: Token ids, including special tokens around the texts.
        second: Start of a pair's second text, for models with token types; otherwise None.
        instructed: Number of tokens in the prompt at the beginning.
    """

    tokens: Tokens
    second: int | None = None
    instructed: int = 0


@attrs.frozen(eq=False)
class PreparedRows(SingleAnswerInput):
    """A request of independent rows; each gets one event with its index.

    Args:
        rows: The request's rows.
        shared: Length of the common prefix of all rows, if the model can compute it once.
        param: The texts' parameter name, for errors.
    """

    rows: tuple[Row, ...]
    shared: int = attrs.field(default=0, kw_only=True)
    param: str = attrs.field(default="input", kw_only=True)

    @property
    def prompt_tokens(self) -> int:
        """Number of tokens in all rows."""
        return sum(len(row.tokens) for row in self.rows)


class RowModel(Protocol):
    """A loaded model that takes rows, confined to its thread."""

    def compute(self, rows: Sequence[Row]) -> Values:
        """Return the model's outputs for rows in one forward pass; each as if it were computed alone."""

    def event(self, prepared: Any, index: int, values: Values) -> InferenceEvent:
        """Return the event for a request's row `index`, for which the model computed `values`.

        Raises:
            ProblemError: The values are invalid.
        """

    def batch_bytes(self, rows: int, width: int) -> int:
        """Return the memory of a forward pass in bytes, without the weights.

        Args:
            rows: Number of rows.
            width: Number of tokens of the longest row.
        """


def common_beginning(rows: Sequence[Row]) -> int:
    """Return the length of all rows' common prefix; at least one token of each row remains after it."""
    first = rows[0].tokens
    shared = min(len(row.tokens) for row in rows) - 1
    for row in rows[1:]:
        differs = first[:shared] != row.tokens[:shared]
        if differs.any():
            shared = int(differs.argmax())
    return shared


def pad(rows: Sequence[Tokens], padding: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return token ids `[rows, width]`, padded on the right, and their mask with 1 at tokens."""
    width = max(map(len, rows))
    ids = np.full((len(rows), width), padding, np.int32)
    mask = np.zeros((len(rows), width), np.int32)
    for at, row in enumerate(rows):
        ids[at, : len(row)] = row
        mask[at, : len(row)] = 1
    return ids, mask
