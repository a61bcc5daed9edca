"""Scores as clients of `/v1/rerank`, `/v2/rerank` and `/v1/score` read them."""

from __future__ import annotations

import time
from typing import Any, Literal

import attrs

from greenroom.http.answering.collecting.collected_results import Results
from greenroom.schemas.ranking.rerank import RankedDocument, RerankAnswer, RerankRequest
from greenroom.schemas.ranking.score import ScoreAnswer, ScoreBody
from greenroom.schemas.result_events import Score

CohereVersion = Literal["1", "2"]


def format_rerank(
    wire: RerankRequest, answer_id: str, version: CohereVersion, found: Results[Score]
) -> dict[str, Any]:
    """Return the most relevant documents, the best first; equal ones stand as they were sent.

    Args:
        version: Of Cohere's API.
    """
    ranked = sorted(found.events, key=lambda score: (-score.value, score.index))
    results = tuple(_ranked(wire, score) for score in ranked[: wire.top_n])
    prompt = found.finished.usage.prompt
    meta = {"api_version": {"version": version}, "tokens": {"input_tokens": prompt, "output_tokens": 0}}
    answer = attrs.asdict(RerankAnswer(answer_id, found.model, results, meta, _usage(found)))
    if not wire.return_documents:
        for result in answer["results"]:
            del result["document"]
    return answer


def format_scores(answer_id: str, found: Results[Score]) -> dict[str, Any]:
    """Return the score of each pair, in the order in which they were sent."""
    ordered = sorted(found.events, key=lambda score: score.index)
    data = tuple(ScoreBody(score.index, score.value) for score in ordered)
    return attrs.asdict(ScoreAnswer(answer_id, int(time.time()), found.model, data, _usage(found)))


def _ranked(wire: RerankRequest, score: Score) -> RankedDocument:
    document = wire.documents[score.index].fields if wire.return_documents else None
    return RankedDocument(score.index, score.value, document)


def _usage(found: Results[Score]) -> dict[str, int]:
    prompt = found.finished.usage.prompt
    return {"prompt_tokens": prompt, "total_tokens": prompt, "completion_tokens": 0}
