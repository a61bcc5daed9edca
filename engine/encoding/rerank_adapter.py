"""The adapter of a reranker: queries and documents in, rows of tokens out."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from greenroom.engine.catalog.encoder_kinds import SAME_CODE, is_classifier
from greenroom.engine.catalog.load_failures import named_failures
from greenroom.engine.catalog.model_files import (
    check_folder,
    check_tokenizer_files,
    read_json_object,
    read_optional,
)
from greenroom.engine.encoding.rows import PreparedRows, Row, Tokens, common_beginning
from greenroom.engine.resources.preparation_steps import PreparationSteps, run_to_end
from greenroom.engine.tokenizer.reading_in_pieces import read_in_pieces
from greenroom.schemas.messages.requests import InferenceRequest, ScoreInput
from greenroom.schemas.models.capabilities import CapabilityRecord
from greenroom.schemas.models.kinds import wrong_kind
from greenroom.schemas.problems import Problem, ProblemError, invalid
from greenroom.schemas.settings.settings import Settings


class RerankAdapter:
    """Prepares requests for one model on one thread, without state between them."""

    def __init__(
        self, record: CapabilityRecord, encoder: PlainEncoder, form: PairTemplate, context: int
    ) -> None:
        self.record = record
        self._causal = form.causal
        self._reader = PairReader(encoder, form, context)

    def prepare_input(self, request: InferenceRequest) -> PreparedRows:
        """Tokenize a request's pairs. Raises ProblemError: 400: a text is too long, or the request is not for
        a reranker.
        """
        return run_to_end(self.prepare_in_steps(request))

    def prepare_in_steps(self, request: InferenceRequest) -> PreparationSteps[PreparedRows]:
        """Do the same as `prepare_input` in steps. Raises ProblemError (400): a text is too long, or the
        request is not for a reranker.
        """
        asked = request.input
        if not isinstance(asked, ScoreInput):
            raise ProblemError(wrong_kind(request.key.model, self.record.model_type, asked))
        if not asked.pairs:
            raise invalid(f"`{asked.param}` is empty: there is nothing to rank.", asked.param)
        rows = yield from self._reader.rows(asked)
        shared = common_beginning(rows) if self._causal else 0
        return PreparedRows(rows, shared=shared, param=asked.param)


def open_rerank_adapter(
    folder: Path, record: CapabilityRecord, settings: Settings, name: str
) -> RerankAdapter:
    """Return the adapter of a model's folder; needs no weights. Raises ProblemError (503): `load_failed`."""
    from transformers import AutoTokenizer

    read_in_pieces()
    with named_failures(folder, name):
        check_folder(folder)
        check_tokenizer_files(folder)
        config = read_json_object(folder / "config.json")
        form = reranker_type(config)
        tokenizer = AutoTokenizer.from_pretrained(
            str(folder),
            local_files_only=True,
            trust_remote_code=settings.trust_remote_code,
            mistral_format=False,  # as in `load_tokenizer`
        )
        encoder = PlainEncoder(_backend(tokenizer))
        context = min(record.context, settings.max_context or record.context)
        if form == "cross_encoder":
            types = int(config.get("type_vocab_size") or 1)
            return RerankAdapter(record, encoder, CrossEncoderTemplate(encoder, types), context)
        return RerankAdapter(record, encoder, GenerativeTemplate(encoder), min(context, MAX_CONTEXT))


def _backend(tokenizer: Any) -> Any:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise ValueError("its tokenizer has no form that the `tokenizers` library computes (tokenizer.json)")
    return backend


MAX_TOKENS = 4_000_000
"""Limit of tokens over all pairs of a request; the query counts with each of its documents."""

_QUERY_SHARE = 2  # Divisor of the context: the query may take half of it, the document gets the rest
_LONGEST_TOKEN = 64
"""Largest average number of characters per token; text beyond that many per token of context is not read."""
_TEXTS_AT_ONCE = 64
_CHARACTERS_AT_ONCE = 65_536  # Limit of characters in one call of the tokenizer


class PairTemplate(Protocol):
    """A model's form of a pair.

    Attributes:
        suffix: The tokens after the document.
        typed: True if the document's tokens have a token type of their own.
        causal: True if attention is causal, so that a common prefix of pairs can be computed once.
    """

    suffix: Tokens
    typed: bool
    causal: bool

    def prefix(self, query: str, instruction: str | None) -> Tokens:
        """Return the tokens before the document. Raises a 400: the model takes no instruction."""

    def document(self, text: str) -> str:
        """Return a document's text as it is tokenized."""


class PlainEncoder:
    """A tokenizer that encodes special tokens in a text as plain text, so that clients cannot inject any.
    `backend`: tokenizer of the `tokenizers` library, confined to this thread.
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
        return np.array(self.backend.encode_batch([text], add_special_tokens=False)[0].ids, np.int32)

    def _as_text(self, tokens: Tokens) -> Tokens:
        # Unigram vocabularies also hold their special tokens as pieces.
        if self._unknown is not None and self._special.size:
            tokens[np.isin(tokens, self._special)] = self._unknown
        return tokens


class PairReader:
    """Makes the rows of requests, on one thread."""

    def __init__(self, encoder: PlainEncoder, template: PairTemplate, context: int) -> None:
        self._encoder = encoder
        self._template = template
        self._context = context

    def rows(self, asked: ScoreInput) -> PreparationSteps[tuple[Row, ...]]:
        """Return a row for each pair, in steps. Raises ProblemError: 400 that names the field: one text, or
        all together, are too long.
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


class CrossEncoderTemplate:
    """The template `[CLS] query [SEP] document [SEP]`, or the tokenizer's own for pairs. `encoder`: the
    model's tokenizer; `types`: number of token types that the model distinguishes.
    """

    causal = False

    def __init__(self, encoder: PlainEncoder, types: int) -> None:
        self._encoder = encoder
        pair = encoder.backend.encode_batch([("a", "b")], add_special_tokens=True)[0]
        texts: list[int | None] = pair.sequence_ids
        ids = np.array(pair.ids, np.int32)
        ends = {text: len(texts) - texts[::-1].index(text) for text in (0, 1)}
        self._before = ids[: texts.index(0)]
        self._between = ids[ends[0] : texts.index(1)]
        self.suffix = ids[ends[1] :]
        self.typed = types > 1 and max(pair.type_ids) > 0

    def prefix(self, query: str, instruction: str | None) -> Tokens:
        if instruction is not None:
            detail = "`instruction` is for models that are told what to look for; a cross-encoder is not."
            raise invalid(detail, "instruction", "unsupported_parameter")
        return np.concatenate((self._before, self._encoder.encode([query])[0], self._between))

    def document(self, text: str) -> str:
        return text


# The pair template of Qwen3-Reranker: a question whose answer is `yes` or `no`.
#
# Source: the model's card, "Transformers Usage".

INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
"""Default instruction: the criterion of relevance."""

MAX_CONTEXT = 8_192  # Limit of tokens per pair, from the model's card; a pair is computed in one pass

_JUDGE = (
    "Judge whether the Document meets the requirements based on the Query and the Instruct provided. "
    'Note that the answer can only be "yes" or "no".'
)
_BEFORE = f"<|im_start|>system\n{_JUDGE}<|im_end|>\n<|im_start|>user\n"
_AFTER = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"


class GenerativeTemplate:
    """The model's prompt around a query and a document."""

    typed, causal = False, True

    def __init__(self, encoder: PlainEncoder) -> None:
        self._encoder = encoder
        self._before = encoder.written(_BEFORE)
        self.suffix = encoder.written(_AFTER)

    def prefix(self, query: str, instruction: str | None) -> Tokens:
        asked = f"<Instruct>: {instruction or INSTRUCTION}\n<Query>: {query}\n<Document>:"
        return np.concatenate((self._before, self._encoder.encode([asked])[0]))

    def document(self, text: str) -> str:
        return f" {text}"


def answer_tokens(folder: Path, vocabulary: Mapping[str, int]) -> tuple[int, int]:
    """Return the token ids of `yes` and `no`, or of the answers named in the model's files. Raises
    ValueError: the vocabulary lacks one.
    """
    for file in sorted(folder.glob("*_LogitScore/config.json")):
        named = read_optional(file)
        found = _token(named.get("true_token_id")), _token(named.get("false_token_id"))
        if found[0] is not None and found[1] is not None:
            return found[0], found[1]
    yes, no = vocabulary.get("yes"), vocabulary.get("no")
    if yes is None or no is None:
        raise ValueError(
            "its vocabulary has no tokens 'yes' and 'no', which a decoder that ranks answers with"
        )
    return yes, no


def _token(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


RerankerType = Literal["cross_encoder", "yes_no"]

CLASSIFIERS: Mapping[str, str] = {
    "bert": "bert",
    "modernbert": "modernbert",
    "xlm-roberta": "xlm_roberta",
    **{name: code.replace("-", "_") for name, code in SAME_CODE.items()},
}
"""Architectures of cross-encoders, with the mlx-vlm packages that implement them."""

_YES_NO = ("qwen3",)  # Architectures of generative rerankers whose prompt is known


def reranker_type(config: Mapping[str, Any]) -> RerankerType:
    """Return the kind of a reranker. Raises ValueError: its kind is not supported."""
    architecture = str(config.get("model_type"))
    classes = [str(name) for name in config.get("architectures") or ()]
    if architecture in CLASSIFIERS or architecture in CLASSIFIERS.values():
        if not is_classifier(config):
            named = ", ".join(classes) or "nothing"
            raise ValueError(f"it ranks, but its config.json names {named} and no classifier of sequences")
        return "cross_encoder"
    if architecture in _YES_NO and all(name.endswith("ForCausalLM") for name in classes):
        return "yes_no"
    if is_classifier(config):
        known = ", ".join(CLASSIFIERS)
        raise ValueError(f"classifiers of the architecture '{architecture}' are not known here ({known} are)")
    way = f"how a decoder of the architecture '{architecture}' is asked to rank"
    raise ValueError(f"{way} is not known here (Qwen3-Reranker's way is)")
