"""Rerank models without actors, and the libraries' scores of the same pairs."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from greenroom.engine.catalog.kind_detection import detect
from greenroom.engine.encoding.encoder_engine import EncoderEngine
from greenroom.engine.encoding.rerank_adapter import RerankAdapter, open_rerank_adapter
from greenroom.engine.encoding.rerankers import open_rerank_engine
from greenroom.engine.encoding.row_queue import TARGET
from greenroom.engine.loading.libraries import import_encoder_libraries
from greenroom.engine.resources.residence import ModelLoad
from greenroom.schemas.events.events import Failed, Finished, InferenceEvent
from greenroom.schemas.events.result_events import Score
from greenroom.schemas.messages.requests import InferenceRequest, ScoreInput
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.engines.fixed_costs import CountedClock

QUERY = "who walks in the garden"
DOCUMENTS = (
    "the man walks",
    "a long story about the weather, the garden, and the people who have been there since the morning",
    "",
    "no",
    "WHO? the garden & its owner, 1,234 times: (yes)",
)


def score(query: str = QUERY, documents: Sequence[str] = DOCUMENTS, **asked: Any) -> InferenceRequest:
    """Return a rerank request."""
    pairs = tuple((query, document) for document in documents)
    return InferenceRequest("r", ModelKey("m"), ScoreInput(pairs, **asked))


class Reranker:
    """An adapter and an engine on one thread."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        import_encoder_libraries()
        self.folder = folder
        self._settings, self._record = Settings(**settings), detect(folder)
        self.adapter: RerankAdapter = open_rerank_adapter(folder, self._record, self._settings, "m")

    @cached_property
    def engine(self) -> EncoderEngine:
        """Engine, loaded at its first use: many tests only prepare requests."""
        clock = CountedClock(tick=TARGET)
        return open_rerank_engine(ModelLoad(self.folder, self._record, self._settings, clock=clock))

    def run(self, *requests: InferenceRequest) -> list[tuple[str, InferenceEvent]]:
        """Submit requests together; return all their events."""
        for request in requests:
            self.engine.submit(request, self.adapter.prepare_input(request))
        events: list[tuple[str, InferenceEvent]] = []
        while self.engine.has_work:
            events += self.engine.step()
        return events

    def scores(self, request: InferenceRequest) -> list[float]:
        """Return the scores of a request's pairs, in order."""
        *found, (_, end) = self.run(request)
        assert isinstance(end, Finished), end
        values = {event.index: event.value for _, event in found if isinstance(event, Score)}
        return [values[index] for index in range(len(values))]

    def failure(self, request: InferenceRequest) -> Failed:
        """Run a request that fails; return its failure."""
        (*_, (_, end)) = self.run(request)
        assert isinstance(end, Failed)
        return end


MakeReranker = Callable[..., Reranker]


def library_scores(folder: Path, query: str, documents: Sequence[str]) -> list[float]:
    """Return the scores of a cross-encoder by mlx-vlm's own server."""
    from mlx_vlm.reranker_loader import load_reranker
    from mlx_vlm.utils import load_config

    reranking: Any = importlib.import_module("mlx_vlm.server.reranking")
    model, processor = load_reranker(str(folder))
    query_item, *items = (reranking.RerankItem(text=text) for text in (query, *documents))
    config = load_config(folder)
    scores, _ = reranking.score_documents(model, processor, config, query_item, items, None)
    return list(map(float, scores))


def library_decisions(folder: Path, rows: Sequence[Sequence[int]]) -> list[float]:
    """Return mlx-vlm's scores of yes/no prompts, each computed alone."""
    from mlx_vlm.reranker_loader import load_reranker

    reranking: Any = importlib.import_module("mlx_vlm.server.reranking")
    model, processor = load_reranker(str(folder))
    tokenizer = reranking._tokenizer(processor)
    inner = model.language_model.model
    scores: list[float] = []
    for row in rows:
        ids, seen = reranking._padded_tokens(tokenizer, [list(map(int, row))])
        hidden, mask = inner.embed_tokens(ids), reranking._attention_mask(seen)
        for layer in inner.layers:
            hidden = layer(hidden, mask, None)
        scores += reranking._binary_scores(model, inner.norm(hidden), seen, tokenizer)
    return scores
