"""What clients of `/v1/rerank` and `/v2/rerank` send, those of Cohere, Jina and vLLM, and are answered."""

from __future__ import annotations

from typing import Annotated, Any

import attrs

from greenroom.schemas.messages import JsonObject
from greenroom.schemas.ranking.converter import RANKING
from greenroom.schemas.wire import AtMost, WireError, wrong_type

MAX_DOCUMENTS = 10_000
"""Of one request, as Cohere has it."""
MAX_FIELDS = 16
"""Of a document that are read."""


@attrs.frozen
class Query:
    """What is asked: text, or an object with a field `text`."""

    text: str


@attrs.frozen
class Document:
    """What may answer it: text, or an object whose fields are texts."""

    fields: JsonObject


Documents = Annotated[tuple[Document, ...], AtMost(MAX_DOCUMENTS)]


@attrs.frozen
class RerankRequest:
    """The body of the request.

    Args:
        rank_fields: Fields of documents that are read, in this order; `text` by default.
        max_tokens_per_doc: Tokens of a document that are read.
        truncation: False refuses documents that are too long; they lose their ends otherwise.
        instruction: What makes a document relevant.
        texts: The documents in the words of Hugging Face's Text Embeddings Inference, whose clients name no
            model and are answered by a list.
        return_text: `return_documents` in its words.
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
    """One of the results, the most relevant first.

    Args:
        index: Of the document, as it was sent.
        document: As an object, if the client wants it back.
    """

    index: int
    relevance_score: float
    document: JsonObject | None = None


@attrs.frozen
class RerankAnswer:
    """The answer, with what each of the clients reads of it."""

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


RANKING.register_structure_hook(Query, _query)
RANKING.register_structure_hook(Document, _document)
