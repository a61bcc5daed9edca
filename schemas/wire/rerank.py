"""Request and response bodies of `/v1/rerank` and `/v2/rerank`, for clients of Cohere, Jina and vLLM."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import attrs

from greenroom.schemas.messages.messages import JsonObject
from greenroom.schemas.wire.wire import AtMost, WireError, make_wire_converter, wrong_type

RERANK_CONVERTER = make_wire_converter()


MAX_DOCUMENTS = 10_000
"""Maximum number of documents in a request, as in Cohere's API."""
MAX_FIELDS = 16
"""Maximum number of fields of a document that are read."""


@attrs.frozen
class Query:
    """The query: text, or an object with a field `text`."""

    text: str


@attrs.frozen
class Document:
    """A document to score: text, or an object whose fields are texts."""

    fields: JsonObject


Documents = Annotated[tuple[Document, ...], AtMost(MAX_DOCUMENTS)]


@attrs.frozen
class RerankRequest:
    """The body of a reranking request.

    Args:
        rank_fields: Fields of a document that are read, in this order; `text` by default.
        max_tokens_per_doc: Maximum number of tokens of a document that are read.
        truncation: False to reject documents that are too long; otherwise they are truncated.
        instruction: Description of a relevant document, for models that accept one.
        texts: Alias of `documents` in Hugging Face's Text Embeddings Inference, whose clients send no model
            and expect a list as response.
        return_text: Alias of `return_documents` in Text Embeddings Inference.
    """

    query: Query
    model: str | None = None
    documents: Documents | None = None
    texts: Documents | None = None
    return_text: bool | None = None
    top_n: int | None = None
    return_documents: bool | None = None
    rank_fields: Annotated[tuple[str, ...], AtMost(MAX_FIELDS)] | None = None
    truncation: bool | None = None
    max_tokens_per_doc: int | None = None
    instruction: str | None = None


@attrs.frozen
class RankedDocument:
    """A scored document.

    Args:
        index: Index of the document in the request.
        document: Document as an object, if the client requests it.
    """

    index: int
    relevance_score: float
    document: JsonObject | None = None


@attrs.frozen
class RerankAnswer:
    """The response body, with the fields that each of the supported clients reads."""

    id: str
    model: str
    results: tuple[RankedDocument, ...]
    meta: dict[str, Any]
    usage: dict[str, int]
    object: str = "list"


def _query(value: Any, _: Any) -> Query:
    if isinstance(value, dict):
        return Query(_text_of(value))
    if not isinstance(value, str):
        raise wrong_type("a string", value)
    if not value.strip():
        raise WireError("must not be empty")
    return Query(value)


def _document(value: Any, _: Any) -> Document:
    if isinstance(value, str):
        return Document({"text": value})
    if not isinstance(value, dict):
        raise wrong_type("a string or an object", value)
    return Document(value)


def _text_of(value: JsonObject) -> str:
    text = value.get("text")
    if not isinstance(text, str) or not text.strip():
        raise WireError("must be a string, or an object with a text in its field `text`")
    return text


RERANK_CONVERTER.register_structure_hook(Query, _query)
RERANK_CONVERTER.register_structure_hook(Document, _document)


@attrs.frozen
class Texts:
    """One or several texts."""

    texts: tuple[str, ...]


@attrs.frozen
class ScoreRequest:
    """The body of a scoring request: one text against many, or two lists of equal length pairwise."""

    model: str
    text_1: Texts
    text_2: Texts
    instruction: str | None = None


@attrs.frozen
class ScoreBody:
    """The score of a pair."""

    index: int
    score: float
    object: Literal["score"] = "score"


@attrs.frozen
class ScoreAnswer:
    """The response body; `created` is a Unix time in seconds."""

    id: str
    created: int
    model: str
    data: tuple[ScoreBody, ...]
    usage: dict[str, int]
    object: Literal["list"] = "list"


def _texts(value: Any, _: Any) -> Texts:
    if isinstance(value, str):
        return Texts((value,))
    if not isinstance(value, list):
        raise wrong_type("a string or an array of strings", value)
    if not value:
        raise WireError("must not be empty")
    if len(value) > MAX_DOCUMENTS:
        raise WireError(f"has {len(value)} items, but must have at most {MAX_DOCUMENTS}")
    for index, text in enumerate(value):
        if not isinstance(text, str):
            raise WireError(f"must hold strings only, but item {index} is something else")
    return Texts(tuple(value))


RERANK_CONVERTER.register_structure_hook(Texts, _texts)
