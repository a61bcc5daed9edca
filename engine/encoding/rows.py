"""The inputs and outputs of models that read whole texts at once: rows of tokens, rows of numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import attrs
import numpy as np
from numpy.typing import NDArray

from greenroom.engine.adapters.conversation_prompts import contents_of
from greenroom.engine.adapters.raw_prompts import RawPrompts
from greenroom.engine.tokenizer.reading_in_pieces import PIECE
from greenroom.engine.tokenizer.tokenizer import ChatTokenizer, TextEncoder
from greenroom.schemas.events.events import InferenceEvent
from greenroom.schemas.messages.prepared_input import SingleAnswerInput
from greenroom.schemas.messages.requests import RawInput
from greenroom.schemas.problems import ProblemError, invalid
from greenroom.schemas.protocols.model_protocol import PromptContents

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
    """A request of independent rows; each gets one event with its index. `rows`: the request's rows;
    `shared`: length of the common prefix of all rows, if the model can compute it once.
    """

    rows: tuple[Row, ...]
    shared: int = attrs.field(default=0, kw_only=True)
    param: str = attrs.field(default="input", kw_only=True)

    @property
    def prompt_tokens(self) -> int:
        return sum(len(row.tokens) for row in self.rows)


class RowModel(Protocol):
    """A loaded model that takes rows, confined to its thread."""

    def compute(self, rows: Sequence[Row]) -> Values:
        """Return the model's outputs for rows in one forward pass; each as if it were computed alone."""

    def event(self, prepared: Any, index: int, values: Values) -> InferenceEvent:
        """Return the event for a request's row `index`, for which the model computed `values`. Raises
        ProblemError: the values are invalid.
        """

    def batch_bytes(self, rows: int, width: int) -> int:
        """Return the memory of a forward pass in bytes, without the weights."""


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


_GROUP = 64  # Limit of texts tokenized at once
CHARACTERS_OF_TOKEN = 64
"""Limit of characters read per token of context, but at least 65,536 in all.

Words are shorter. Longer runs (a million spaces, one endless word) can take a tokenizer minutes.
"""


class TextRows:
    """Tokenizes whole texts for one model. `longest`: limit of tokens per text, including special tokens."""

    def __init__(self, tokenizer: ChatTokenizer, longest: int) -> None:
        self.longest = longest
        self._tokenizer = tokenizer
        self._encoder = TextEncoder(tokenizer.wrapped)
        self._raw_prompts = RawPrompts(tokenizer, longest)
        self._backend = getattr(tokenizer.wrapped._tokenizer, "_tokenizer", None)

    def tokenize(self, texts: Sequence[str]) -> Iterator[list[int] | None]:
        """Yield the token ids of each text, with special tokens; and None between steps."""
        at = 0
        while at < len(texts):
            end, size = at, 0
            while end < len(texts) and end - at < _GROUP and (size := size + len(texts[end])) <= PIECE:
                end += 1
            if end == at or self._backend is None:
                tokens: list[int] = []
                for piece in self._encoder.pieces(texts[at], special=True):
                    tokens += piece
                    yield None
                yield tokens
                at += 1
                continue
            yield from (found.ids for found in self._backend.encode_batch_fast(list(texts[at:end])))
            yield None
            at = end

    def bounded(self, text: str, truncate: bool, param: str) -> str:
        """Return a text with no more characters than could fit. `truncate`: True to cut a longer text instead
        of rejecting it. Raises ProblemError: 400 that names `param`.
        """
        most = max(PIECE, self.longest * CHARACTERS_OF_TOKEN)
        if len(text) > most and not truncate:
            raise self._too_long(param, f"{len(text)} characters, and more than {most} are never read")
        return text[:most]

    def around(self) -> tuple[list[int], list[int]]:
        return self._encoder.special_tokens

    def tokens_before(self, prompt: str) -> int:
        before, _ = self.around()
        return len(before) + len(self._encoder.inside(prompt))

    def fit(self, tokens: Sequence[int], truncate: bool, param: str, *, as_they_are: bool = False) -> Tokens:
        """Return the token ids, cut to the limit; the special tokens at the end are kept.

        Args:
            truncate: True to cut a longer text instead of rejecting it.
            as_they_are: True if the client sent token ids, which get no special tokens.

        Raises:
            ProblemError: 400 that names `param`: the text is empty or too long.
        """
        if not tokens:
            raise invalid(f"`{param}` is empty: there is nothing that the model could read.", param)
        if len(tokens) > self.longest:
            if not truncate:
                raise self._too_long(param, str(len(tokens)))
            end = [] if as_they_are else self.around()[1]
            tokens = [*tokens[: max(self.longest - len(end), 0)], *end][: self.longest]
        return np.array(tokens, np.int32)

    def checked(self, tokens: Sequence[int], param: str) -> Sequence[int]:
        """Return a client's token ids after checking them. Raises ProblemError (400): an id is not in the
        vocabulary.
        """
        size = self._tokenizer.vocab_size
        if tokens and not (min(tokens) >= 0 and max(tokens) < size):
            at = next(at for at, ident in enumerate(tokens) if not 0 <= ident < size)
            field = f"{param}[{at}]"
            raise invalid(f"`{field}` is not a token of this model: ids go from 0 to {size - 1}.", field)
        return tokens

    def inspect(self, raw: RawInput) -> PromptContents:
        """Return a text as the model reads it. Raises ProblemError (400): it is too long."""
        tokens = self._raw_prompts.encode(raw, may_be_empty=True)
        text = raw.prompt if isinstance(raw.prompt, str) else None
        return contents_of(tokens, text, self._tokenizer, self.longest)

    def _too_long(self, param: str, has: str) -> ProblemError:
        detail = (
            f"This model's maximum context length is {self.longest} tokens, but `{param}` has {has}. Shorten "
            "it, or send `truncate: true` to have its end cut off."
        )
        return invalid(detail, param, "context_length_exceeded")
