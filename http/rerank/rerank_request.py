"""Parsing of `/v1/rerank`, `/v2/rerank` and `/v1/score` into a protocol-independent request."""

from __future__ import annotations

import itertools

from greenroom.http.answering.requests.request_parameters import (
    NeutralValues,
    parse_model_key,
    parse_priority,
)
from greenroom.schemas.messages.messages import JsonObject
from greenroom.schemas.messages.requests import InferenceRequest, ScoreInput
from greenroom.schemas.problems import invalid, missing
from greenroom.schemas.rerank.rerank import Document, RerankRequest
from greenroom.schemas.rerank.score import ScoreRequest

UNSUPPORTED_IN_RERANK: NeutralValues = {
    "max_chunks_per_doc": (1,),
    "relevant_spans": ({"mode": "disabled"},),
    "return_embeddings": (False,),
}
"""Unsupported parameters of Cohere and Jina: long documents are truncated, not split into chunks."""

UNSUPPORTED_IN_SCORE: NeutralValues = {
    "truncate_prompt_tokens": (-1,),
    "activation": (True,),
    "use_activation": (True,),
    "softmax": (True,),
}
"""Unsupported parameters of vLLM."""


def parse_rerank_request(
    wire: RerankRequest, body: JsonObject, request_id: str, client: str
) -> InferenceRequest:
    """Parse a rerank request into a protocol-independent one.

    Raises:
        ProblemError: 400 that names the offending field.
    """
    documents = documents_of(wire)
    if not documents:
        field = "documents" if wire.texts is None else "texts"
        raise invalid(f"`{field}` is empty: there is nothing to rank.", field)
    if wire.model is None and wire.texts is None:
        raise missing("model")
    for name in ("top_n", "max_tokens_per_doc"):
        value = getattr(wire, name)
        if value is not None and value < 1:
            raise invalid(f"`{name}` is {value}, but must be at least 1.", name)
    if "" in (wire.rank_fields or ()):
        raise invalid("`rank_fields` holds an empty name: name fields of documents.", "rank_fields")
    query = wire.query.text
    texts = (_text(document, at, wire.rank_fields) for at, document in enumerate(documents))
    asked = ScoreInput(
        tuple((query, text) for text in texts),
        _instruction(wire.instruction),
        truncate=wire.truncation is not False,
        document_tokens=wire.max_tokens_per_doc,
    )
    key = parse_model_key("default" if wire.model is None else wire.model)
    return InferenceRequest(request_id, key, asked, client=client, priority=parse_priority(body))


def documents_of(wire: RerankRequest) -> tuple[Document, ...]:
    """Return the documents to rank.

    Raises:
        ProblemError: 400: there are none, or under both names.
    """
    if wire.documents is not None and wire.texts is not None:
        raise invalid("`documents` and `texts` are two names for the same field: send one of them.", "texts")
    documents = wire.documents if wire.texts is None else wire.texts
    if documents is None:
        raise missing("documents")
    return documents


def parse_score_request(
    wire: ScoreRequest, body: JsonObject, request_id: str, client: str
) -> InferenceRequest:
    """Parse a score request into a protocol-independent one.

    Raises:
        ProblemError: 400 that names the offending field.
    """
    first, second = wire.text_1.texts, wire.text_2.texts
    if len(first) != 1 and len(first) != len(second):
        detail = f"`text_1` has {len(first)} texts and `text_2` has {len(second)}"
        raise invalid(f"{detail}: give one for all, or one for each.", "text_1")
    pairs = tuple(zip(itertools.cycle(first) if len(first) == 1 else first, second, strict=False))
    asked = ScoreInput(pairs, _instruction(wire.instruction), param="text_2", query_param="text_1")
    key, priority = parse_model_key(wire.model), parse_priority(body)
    return InferenceRequest(request_id, key, asked, client=client, priority=priority)


def _instruction(text: str | None) -> str | None:
    if text is not None and not text.strip():
        raise invalid(
            "`instruction` is empty: say what makes a document relevant, or leave it out.", "instruction"
        )
    return text


def _text(document: Document, at: int, fields: tuple[str, ...] | None) -> str:
    if not fields or fields == ("text",):
        return _field(document.fields, "text", at)
    return "\n".join(f"{field}: {_field(document.fields, field, at)}" for field in fields)


def _field(fields: JsonObject, name: str, at: int) -> str:
    value = fields.get(name)
    if isinstance(value, str):
        return value
    path = f"documents[{at}]"
    if "image" in fields or "image_url" in fields:
        raise invalid(f"`{path}` is an image, but rerank models read only text here.", path)
    raise invalid(f"`{path}` must be a string, or an object with a text in its field `{name[:80]}`.", path)
