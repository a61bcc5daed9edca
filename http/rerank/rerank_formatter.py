"""Formatting of responses to `/v1/rerank`, `/v2/rerank` and `/v1/score`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Literal

import attrs

from greenroom.http.answering.collecting.collected_results import Results
from greenroom.http.rerank.rerank_request import documents_of
from greenroom.schemas.events.result_events import Score
from greenroom.schemas.rerank.rerank import Document, RankedDocument, RerankAnswer, RerankRequest
from greenroom.schemas.rerank.score import ScoreAnswer, ScoreBody

CohereVersion = Literal["1", "2"]


def format_rerank(
    wire: RerankRequest, answer_id: str, version: CohereVersion, found: Results[Score]
) -> dict[str, Any] | list[dict[str, Any]]:
    """Return the most relevant documents, best first; ties stay in request order.

    Args:
        version: Version of Cohere's API.
    """
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
    """Return the scores of all pairs in request order."""
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
