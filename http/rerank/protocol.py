"""The rerank protocol of Cohere's, Jina's and vLLM's clients: as a `WireProtocol`, and its routes."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal

import attrs
from quart import Blueprint, Response

from greenroom.http.answering.collecting import Results, collect_results
from greenroom.http.answering.current_request import answer_id, request_client, request_id
from greenroom.http.answering.http_responses import LARGE, large_json_response
from greenroom.http.answering.protocols import ANSWERED_BY_A_MODEL, WireProtocol, described
from greenroom.http.answering.request_parameters import NeutralValues, parse_model_key, parse_priority
from greenroom.http.answering.route_services import RouteServices
from greenroom.http.encoding.problem_documents import error_members
from greenroom.schemas.events.result_events import Score
from greenroom.schemas.messages.messages import JsonObject
from greenroom.schemas.messages.requests import InferenceRequest, ScoreInput
from greenroom.schemas.problems import Problem, invalid, missing
from greenroom.schemas.wire.rerank import (
    RERANK_CONVERTER,
    Document,
    RankedDocument,
    RerankAnswer,
    RerankRequest,
    ScoreAnswer,
    ScoreBody,
    ScoreRequest,
)


def rank_routes(services: RouteServices) -> Blueprint:
    routes = Blueprint("ranking", __name__)

    @described("Rank documents", body=RerankRequest, converter=RERANK_CONVERTER, problems=ANSWERED_BY_A_MODEL)
    async def rerank(version: CohereVersion) -> Response:
        parse = partial(parse_rerank_request, request_id=request_id(), client=request_client())
        wire, request = await services.read_request(
            RerankRequest, RERANK_CONVERTER, UNSUPPORTED_IN_RERANK, parse
        )
        found = await collect_results(services.refs.pool, request, Score)
        answer = partial(format_rerank, wire, answer_id("rerank-"), version, found)
        return await large_json_response(answer, LARGE if wire.return_documents else len(found.events))

    @described(
        "Score pairs of texts", body=ScoreRequest, converter=RERANK_CONVERTER, problems=ANSWERED_BY_A_MODEL
    )
    async def score() -> Response:
        parse = partial(parse_score_request, request_id=request_id(), client=request_client())
        _, request = await services.read_request(ScoreRequest, RERANK_CONVERTER, UNSUPPORTED_IN_SCORE, parse)
        found = await collect_results(services.refs.pool, request, Score)
        return await large_json_response(
            partial(format_scores, answer_id("score-"), found), len(found.events)
        )

    for path, answer in (
        ("/v1/rerank", partial(rerank, "1")),
        ("/v2/rerank", partial(rerank, "2")),
        ("/rerank", partial(rerank, "1")),
        ("/v1/score", score),
        ("/score", score),
    ):
        routes.add_url_rule(path, path.replace("/", " ").strip(), answer, methods=["POST"])
    return routes


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
    """Parse a rerank request into a protocol-independent one. Raises ProblemError: 400 that names the
    offending field.
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
    """Return the documents to rank. Raises ProblemError (400): there are none, or under both names."""
    if wire.documents is not None and wire.texts is not None:
        raise invalid("`documents` and `texts` are two names for the same field: send one of them.", "texts")
    documents = wire.documents if wire.texts is None else wire.texts
    if documents is None:
        raise missing("documents")
    return documents


def parse_score_request(
    wire: ScoreRequest, body: JsonObject, request_id: str, client: str
) -> InferenceRequest:
    """Parse a score request into a protocol-independent one. Raises ProblemError: 400 that names the
    offending field.
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


CohereVersion = Literal["1", "2"]


def format_rerank(
    wire: RerankRequest, answer_id: str, version: CohereVersion, found: Results[Score]
) -> dict[str, Any] | list[dict[str, Any]]:
    """Return the most relevant documents, best first; ties stay in request order."""
    ranked = sorted(found.events, key=lambda score: (-score.value, score.index))
    if wire.texts is not None:
        return [_tei_rank(wire.texts, score, with_text=bool(wire.return_text)) for score in ranked]
    results = tuple(_ranked(wire, score) for score in ranked[: wire.top_n])
    prompt = found.finished.usage.prompt
    meta = {"api_version": {"version": version}, "tokens": {"input_tokens": prompt, "output_tokens": 0}}
    answer = attrs.asdict(RerankAnswer(answer_id, found.model, results, meta, _usage(found)))
    if not wire.return_documents:
        for result in answer["results"]:
            del result["document"]
    return answer


def format_scores(answer_id: str, found: Results[Score]) -> dict[str, Any]:
    ordered = sorted(found.events, key=lambda score: score.index)
    data = tuple(ScoreBody(score.index, score.value) for score in ordered)
    return attrs.asdict(ScoreAnswer(answer_id, int(time.time()), found.model, data, _usage(found)))


def _tei_rank(texts: Sequence[Document], score: Score, *, with_text: bool) -> dict[str, Any]:
    text = {"text": texts[score.index].fields.get("text")} if with_text else {}
    return {"index": score.index, **text, "score": score.value}


def _ranked(wire: RerankRequest, score: Score) -> RankedDocument:
    document = documents_of(wire)[score.index].fields if wire.return_documents else None
    return RankedDocument(score.index, score.value, document)


def _usage(found: Results[Score]) -> dict[str, int]:
    prompt = found.finished.usage.prompt
    return {"prompt_tokens": prompt, "total_tokens": prompt, "completion_tokens": 0}


def _routes(services: RouteServices) -> tuple[Blueprint, ...]:
    return (rank_routes(services),)


def _error_members(problem: Problem, request_id: str | None) -> Mapping[str, Any]:
    return {"message": problem.detail, **error_members(problem, request_id)}


RERANK_PROTOCOL = WireProtocol(
    ("/v1/rerank", "/v2/rerank", "/rerank", "/v1/score", "/score"), _routes, _error_members, name="rerank"
)
