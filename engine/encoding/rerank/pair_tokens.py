"""Tokenization of query-document pairs within the model's context, without special tokens from clients."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from greenroom.engine.encoding.rows import Row, Tokens
from greenroom.engine.fairness.preparation_steps import PreparationSteps
from greenroom.schemas.messages.requests import ScoreInput
from greenroom.schemas.problems import Problem, ProblemError

MAX_TOKENS = 4_000_000
"""Limit of tokens over all pairs of a request; the query counts with each of its documents."""

_QUERY_SHARE = 2
"""Divisor of the context: the query may take half of it, the document gets the rest."""
_LONGEST_TOKEN = 64
"""Largest average number of characters per token; text beyond that many per token of context is not read."""
_TEXTS_AT_ONCE = 64
_CHARACTERS_AT_ONCE = 65_536
"""Limit of characters in one call of the tokenizer."""


class PairTemplate(Protocol):
    """The pair template of a model, confined to one thread."""

    def prefix(self, query: str, instruction: str | None) -> Tokens:
        """Return the tokens before the document.

        Raises:
            ProblemError: 400: the model takes no instruction.
        """

    def document(self, text: str) -> str:
        """Return a document's text as it is tokenized."""

    @property
    def suffix(self) -> Tokens:
        """The tokens after the document."""

    @property
    def typed(self) -> bool:
        """True if the document's tokens have a token type of their own."""

    @property
    def causal(self) -> bool:
        """True if attention is causal, so that a common prefix of pairs can be computed once."""


class PlainEncoder:
    """A tokenizer that encodes special tokens in a text as plain text, so that clients cannot inject any.

    Args:
        backend: Tokenizer of the `tokenizers` library, confined to this thread.
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
        """Return the token ids of each text, without special tokens around it."""
        self.backend.encode_special_tokens = True
        try:
            # Only the batch method releases the GIL.
            encoded = self.backend.encode_batch_fast(list(texts), add_special_tokens=False)
        finally:
            self.backend.encode_special_tokens = False
        return [self._as_text(np.array(each.ids, np.int32)) for each in encoded]

    def written(self, text: str) -> Tokens:
        """Return the token ids of the server's own text, in which special tokens count."""
        return np.array(self.backend.encode_batch([text], add_special_tokens=False)[0].ids, np.int32)

    def _as_text(self, tokens: Tokens) -> Tokens:
        # Unigram vocabularies also hold their special tokens as pieces.
        if self._unknown is not None and self._special.size:
            tokens[np.isin(tokens, self._special)] = self._unknown
        return tokens


class PairReader:
    """Makes the rows of requests, on one thread.

    Args:
        encoder: The model's tokenizer.
        template: The model's pair template.
        context: Limit of tokens per pair.
    """

    def __init__(self, encoder: PlainEncoder, template: PairTemplate, context: int) -> None:
        self._encoder = encoder
        self._template = template
        self._context = context

    def rows(self, asked: ScoreInput) -> PreparationSteps[tuple[Row, ...]]:
        """Return a row for each pair, in steps.

        Raises:
            ProblemError: 400 that names the field: one text, or all together, are too long.
        """
        rows: list[Row] = []
        left = MAX_TOKENS
        for prefix, documents in self._documents(asked):
            for tokens in documents:
                row = self._row(asked, len(rows), prefix, tokens)
                left -= len(row.tokens)
                if left < 0:
                    detail = f"`{asked.param}` and their queries have more than {MAX_TOKENS:,} tokens"
                    raise _too_long(f"{detail} together. Send them in several requests.", asked.param)
                rows.append(row)
            yield None
        return tuple(rows)

    def _documents(self, asked: ScoreInput) -> Iterator[tuple[Tokens, list[Tokens]]]:
        """Yield groups of documents' tokens, each with the tokens before them."""
        for query, pairs in itertools.groupby(enumerate(asked.pairs), key=lambda each: each[1][0]):
            prefix = self._prefix(asked, query)
            room = self._context - len(prefix) - len(self._template.suffix)
            documents = (self._document(asked, index, document, room) for index, (_, document) in pairs)
            for texts in _groups(documents):
                yield prefix, self._encoder.encode(texts)

    def _document(self, asked: ScoreInput, index: int, document: str, room: int) -> str:
        text, longest = self._template.document(document), (room + 1) * _LONGEST_TOKEN
        if len(text) > longest and not asked.truncate:
            raise _document_too_long(asked, index, room)
        return text[:longest]

    def _prefix(self, asked: ScoreInput, query: str) -> Tokens:
        most = self._context // _QUERY_SHARE
        prefix = self._fitting_prefix(query, asked.instruction, most)
        if prefix is not None:
            return prefix
        alone = asked.instruction is not None and self._fitting_prefix("", asked.instruction, most) is None
        param = "instruction" if alone else asked.query_param
        detail = (
            f"`{param}` is too long: with what the model wants around it, it may have {most} tokens, half of "
            f"the {self._context} that the model reads of a pair."
        )
        raise _too_long(detail, param)

    def _fitting_prefix(self, query: str, instruction: str | None, most: int) -> Tokens | None:
        if len(query) + len(instruction or "") > most * _LONGEST_TOKEN:
            return None
        prefix = self._template.prefix(query, instruction)
        return prefix if len(prefix) + len(self._template.suffix) <= most else None

    def _row(self, asked: ScoreInput, index: int, prefix: Tokens, document: Tokens) -> Row:
        suffix = self._template.suffix
        room = self._context - len(prefix) - len(suffix)
        if len(document) > room and not asked.truncate:
            raise _document_too_long(asked, index, room)
        read = room if asked.document_tokens is None else min(room, asked.document_tokens)
        tokens = np.concatenate((prefix, document[:read], suffix))
        return Row(tokens, second=len(prefix) if self._template.typed else None)


def _groups(texts: Iterable[str]) -> Iterator[list[str]]:
    """Yield texts in groups small enough to be tokenized quickly."""
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
