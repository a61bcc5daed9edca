"""Late device errors: no embedding or rerank request ends with different numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from greenroom.engine.encoding.encoder_engine import EncoderEngine
from greenroom.engine.encoding.row_queue import Job
from greenroom.schemas.events.events import Failed, Finished, InferenceEvent
from greenroom.schemas.events.result_events import Score, Vector
from greenroom.schemas.messages.requests import InferenceRequest
from greenroom.tests.support.engines.embedders import collect, open_embedder
from greenroom.tests.support.engines.late_errors import LateError
from greenroom.tests.support.engines.rerankers import Reranker, score
from greenroom.tests.support.engines.schedules import soak_only
from greenroom.tests.support.models.tiny_encoders import TinyEncoder
from greenroom.tests.support.texts.random_texts import random_texts

Ended = dict[str, list[InferenceEvent]]
LATE = [1, 20, *soak_only(0, 2, 3, 5, 9)]


def run(engine: EncoderEngine) -> tuple[Ended, Mapping[str, Job]]:
    """Answer all; return the events of ended requests, and the requests that can continue elsewhere."""
    events: Ended = {}
    left: Mapping[str, Job] = {}
    try:
        while engine.has_work:
            collect(engine.step(), events)
    except RuntimeError:
        left = engine.unbegun()
    engine.close()
    ended = {name: each for name, each in events.items() if isinstance(each[-1], Finished | Failed)}
    return ended, left


def numbers(events: list[InferenceEvent]) -> np.ndarray[Any, Any]:
    """Return the vectors or scores of a request, in its order."""
    assert isinstance(events[-1], Finished), events[-1]
    values = {each.index: np.frombuffer(each.values, "<f4") for each in events if isinstance(each, Vector)}
    values |= {each.index: np.array([each.value]) for each in events if isinstance(each, Score)}
    return np.stack([values[index] for index in sorted(values)])


def check(
    monkeypatch: pytest.MonkeyPatch,
    begin: Callable[[], EncoderEngine],
    opened: Callable[[], EncoderEngine],
    late: int,
) -> None:
    """Make one pass after another fail, and compare ended requests with their results without failures."""
    right, _ = run(begin())
    for spoiled in range(1, 4):
        engine = begin()
        with monkeypatch.context() as patch:
            error = LateError(patch, late, spoiled)
            ended, left = run(engine)
            assert error.thrown
        assert len(ended) < len(right)
        for name, events in ended.items():
            np.testing.assert_allclose(numbers(events), numbers(right[name]), atol=1e-5)
        following = opened()
        for job in left.values():
            following.resume(job)
        for name, events in run(following)[0].items():
            np.testing.assert_allclose(numbers(events), numbers(right[name]), atol=1e-5)


@pytest.mark.parametrize("late", LATE)
def test_no_request_ends_with_other_vectors(
    tiny_encoder: TinyEncoder, monkeypatch: pytest.MonkeyPatch, late: int
) -> None:
    folder: Path = tiny_encoder("bert")

    def begin() -> EncoderEngine:
        embedder = open_embedder(folder)
        for name, count in (("first", 40), ("second", 2), ("third", 60)):
            embedder.submit(random_texts(count, seed=count), name, client=name)
        return embedder.engine

    check(monkeypatch, begin, lambda: open_embedder(folder).engine, late)


@pytest.mark.parametrize("late", LATE)
def test_no_request_ends_with_other_scores(
    tiny_encoder: TinyEncoder, monkeypatch: pytest.MonkeyPatch, late: int
) -> None:
    """The shared prefix of a request's pairs is computed separately."""
    folder: Path = tiny_encoder("qwen3-rerank")

    def begin() -> EncoderEngine:
        model = Reranker(folder)
        for name, query in (
            ("first", " ".join(random_texts(3, longest=30, seed=5))),
            ("second", "who walks"),
        ):
            asked = score(query, tuple(random_texts(60, longest=12, seed=1)))
            request = InferenceRequest(name, asked.key, asked.input, client=name)
            model.engine.submit(request, model.adapter.prepare_input(request))
        return model.engine

    check(monkeypatch, begin, lambda: Reranker(folder).engine, late)
