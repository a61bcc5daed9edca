"""Pairs of texts as tokens: a query and a document, within what the model reads, and nothing but text."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from greenroom.engine.encoding.rows import Row, Tokens
from greenroom.engine.fairness.slices import Slices
from greenroom.schemas.messages.requests import ScoreInput
from greenroom.schemas.problems import Problem, ProblemError

MAX_TOKENS = 4_000_000
"""Of all pairs of a request, the query counted with each of its documents."""

_QUERY_SHARE = 2
"""A query may take this part of what the model reads; the rest is the document's."""
_LONGEST_TOKEN = 64
"""Characters that a token stands for at most, on average: what is behind that many for each is not read."""
_TEXTS_AT_ONCE = 64
_CHARACTERS_AT_ONCE = 65_536
"""Of one call into the tokenizer."""


class PairForm(Protocol):
    """How a model wants a query and a document, for one thread."""

    def head(self, query: str, instruction: str | None) -> Tokens:
        """Return all that stands before the document.

        Raises:
            ProblemError: 400: the model takes no instruction.
        """

    def document(self, text: str) -> str:
        """Return a document as it is tokenized."""

    @property
    def tail(self) -> Tokens:
        """What stands behind the document."""

    @property
    def typed(self) -> bool:
        """Whether tokens of the document have a type of their own."""

    @property
    def causal(self) -> bool:
        """Whether no token looks at what follows, so that what pairs begin with is the same in all."""


class PlainEncoder:
    """Text to tokens; special tokens in it are spelled, so that a client cannot write any.

    Args:
        backend: Of the `tokenizers` library; belongs to this thread.
    """

    def __init__(self, backend: Any) -> None:
        backend.no_truncation()
        backend.no_padding()
        self.backend = backend
        added = backend.get_added_tokens_decoder()
        self._special = np.array([ident for ident, token in added.items() if token.special], np.int32)
        unknown = getattr(backend.model, "unk_token", None) or "<unk>"
        self._unknown = backend.token_to_id(unknown)

    def encode(self, texts: Sequence[str]) -> list[Tokens]:
        """Return the tokens of each text, without any around it."""
        self.backend.encode_special_tokens = True
        try:
            # The batch form is the one that lets other threads run meanwhile.
            encoded = self.backend.encode_batch_fast(list(texts), add_special_tokens=False)
        finally:
            self.backend.encode_special_tokens = False
        return [self._as_text(np.array(each.ids, np.int32)) for each in encoded]

    def written(self, text: str) -> Tokens:
        """Return the tokens of a text of our own, whose special tokens count."""
        return np.array(self.backend.encode_batch([text], add_special_tokens=False)[0].ids, np.int32)

    def _as_text(self, tokens: Tokens) -> Tokens:
        # Unigram vocabularies hold their special tokens as pieces, too.
        if self._unknown is not None and self._special.size:
            tokens[np.isin(tokens, self._special)] = self._unknown
        return tokens


class PairReader:
    """Makes the rows of requests, on one thread.

    Args:
        context: Tokens of a pair at most.
    """

    def __init__(self, encoder: PlainEncoder, form: PairForm, context: int) -> None:
        self._encoder = encoder
        self._form = form
        self._context = context

    def rows(self, asked: ScoreInput) -> Slices[tuple[Row, ...]]:
        """Return a row for each pair, in slices.

        Raises:
            ProblemError: 400 that names the field: a text, or all of them, are too long.
        """
        rows: list[Row] = []
        left = MAX_TOKENS
        for head, documents in self._documents(asked):
            for tokens in documents:
                row = self._row(asked, len(rows), head, tokens)
                left -= len(row.tokens)
                if left < 0:
                    detail = f"`{asked.param}` and their queries have more than {MAX_TOKENS:,} tokens"
                    raise _too_long(f"{detail} together. Send them in several requests.", asked.param)
                rows.append(row)
            yield None
        return tuple(rows)

    def _documents(self, asked: ScoreInput) -> Iterator[tuple[Tokens, list[Tokens]]]:
        """Yield what stands before some documents, and their tokens."""
        for query, pairs in itertools.groupby(enumerate(asked.pairs), key=lambda each: each[1][0]):
            head = self._head(asked, query)
            room = self._context - len(head) - len(self._form.tail)
            documents = (self._document(asked, index, document, room) for index, (_, document) in pairs)
            for texts in _groups(documents):
                yield head, self._encoder.encode(texts)

    def _document(self, asked: ScoreInput, index: int, document: str, room: int) -> str:
        text, longest = self._form.document(document), (room + 1) * _LONGEST_TOKEN
        if len(text) > longest and not asked.truncate:
            raise _document_too_long(asked, index, room)
        return text[:longest]

    def _head(self, asked: ScoreInput, query: str) -> Tokens:
        most = self._context // _QUERY_SHARE
        head = self._fitting_head(query, asked.instruction, most)
        if head is not None:
            return head
        alone = asked.instruction is not None and self._fitting_head("", asked.instruction, most) is None
        param = "instruction" if alone else asked.query_param
        detail = (
            f"`{param}` is too long: with what the model wants around it, it may have {most} tokens, half of "
            f"the {self._context} that the model reads of a pair."
        )
        raise _too_long(detail, param)

    def _fitting_head(self, query: str, instruction: str | None, most: int) -> Tokens | None:
        if len(query) + len(instruction or "") > most * _LONGEST_TOKEN:
            return None
        head = self._form.head(query, instruction)
        return head if len(head) + len(self._form.tail) <= most else None

    def _row(self, asked: ScoreInput, index: int, head: Tokens, document: Tokens) -> Row:
        tail = self._form.tail
        room = self._context - len(head) - len(tail)
        if len(document) > room and not asked.truncate:
            raise _document_too_long(asked, index, room)
        read = room if asked.document_tokens is None else min(room, asked.document_tokens)
        tokens = np.concatenate((head, document[:read], tail))
        return Row(tokens, second=len(head) if self._form.typed else None)


def _groups(texts: Iterable[str]) -> Iterator[list[str]]:
    """Yield texts in groups that are tokenized quickly."""
    group: list[str] = []
    size = 0
    for text in texts:
        group.append(text)
        size += len(text)
        if len(group) >= _TEXTS_AT_ONCE or size >= _CHARACTERS_AT_ONCE:
            yield group
            group, size = [], 0
    if group:
        yield group


def _document_too_long(asked: ScoreInput, index: int, room: int) -> ProblemError:
    detail = f"Document {index} of `{asked.param}` has more than the {room} tokens that are read of it."
    return _too_long(detail, asked.param)


def _too_long(detail: str, param: str) -> ProblemError:
    return ProblemError(Problem(400, "context_length_exceeded", detail, param))
