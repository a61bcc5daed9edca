"""A query is computed once for all its documents, with the same scores as alone."""

from __future__ import annotations

import attrs
import numpy as np
import pytest

from greenroom.engine.encoding import row_queue
from greenroom.engine.encoding.rerankers import GenerativeReranker, PrefixKV
from greenroom.engine.encoding.row_queue import Job
from greenroom.engine.resources.memory_account import Share
from greenroom.schemas.events.events import Finished, InferenceEvent
from greenroom.schemas.events.result_events import Score
from greenroom.schemas.messages.requests import InferenceRequest
from greenroom.schemas.problems import ProblemError
from greenroom.tests.support.engines.rerankers import DOCUMENTS, MakeReranker, Reranker, score
from greenroom.tests.support.texts.random_texts import random_texts

QUERY = " ".join(random_texts(3, longest=30, seed=5))
MANY = (*DOCUMENTS, *random_texts(60, longest=12, seed=1))
SMALL = 1e-6


@pytest.fixture
def model(reranker: MakeReranker) -> Reranker:
    return reranker("qwen3-rerank")


@pytest.fixture
def advanced(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list of the shared prefixes' tokens computed in each pass."""
    counts: list[int] = []
    advance = PrefixKV.advance

    def counted(prefix: PrefixKV, count: int) -> None:
        counts.append(count)
        advance(prefix, count)

    monkeypatch.setattr(PrefixKV, "advance", counted)
    return counts


def alone(model: Reranker, documents: tuple[str, ...] = MANY) -> list[float]:
    return [model.scores(score(QUERY, (document,)))[0] for document in documents]


def held(model: Reranker) -> int:
    return model.engine._memory.share.running


def scores_of(events: list[tuple[str, InferenceEvent]], request_id: str) -> list[float]:
    found = {
        event.index: event.value for name, event in events if name == request_id and isinstance(event, Score)
    }
    return [found[index] for index in range(len(found))]


def test_no_documents_are_a_400(model: Reranker) -> None:
    with pytest.raises(ProblemError, match="nothing to rank"):
        model.adapter.prepare_input(score(QUERY, ()))


def named(request_id: str, query: str) -> InferenceRequest:
    request = score(query, MANY)
    return InferenceRequest(request_id, request.key, request.input, client=request_id)


@pytest.mark.deep
def test_a_query_is_computed_once_and_scores_are_those_of_documents_alone(
    model: Reranker, advanced: list[int]
) -> None:
    prepared = model.adapter.prepare_input(score(QUERY, MANY))
    *found, (_, end) = model.run(score(QUERY, MANY))
    assert sum(advanced) == prepared.shared > 100
    assert isinstance(end, Finished)
    assert end.usage.prompt == prepared.prompt_tokens
    expected = alone(model)
    assert np.abs(np.subtract(scores_of(found, "r"), expected)).max() < SMALL
    assert len({round(value, 4) for value in expected}) > 20, "scores differ, or this shows nothing"
    assert sum(advanced) == prepared.shared, "a document alone shares nothing"


@pytest.mark.deep
def test_documents_that_are_left_to_another_engine_stand_behind_the_same_query(
    model: Reranker, reranker: MakeReranker, advanced: list[int]
) -> None:
    prepared = model.adapter.prepare_input(score(QUERY, MANY))
    model.engine.submit(score(QUERY, MANY), prepared)
    events: list[tuple[str, InferenceEvent]] = []
    while not any(isinstance(event, Score) for _, event in events):
        events += model.engine.step()
    suspended = model.engine.suspend()
    assert suspended is not None
    following = reranker("qwen3-rerank")
    following.engine.resume(suspended["r"])
    while following.engine.has_work:
        events += following.engine.step()
    assert sum(advanced) == 2 * prepared.shared
    assert sum(isinstance(event, Score) for _, event in events) == len(MANY)
    assert np.abs(np.subtract(scores_of(events, "r"), alone(model))).max() < SMALL
    end = events[-1][1]
    assert isinstance(end, Finished)
    assert end.usage.prompt == prepared.prompt_tokens


@pytest.mark.parametrize("documents", [("the man walks",) * 80, ("a", "") * 40])
def test_documents_may_be_the_same(model: Reranker, advanced: list[int], documents: tuple[str, ...]) -> None:
    found = model.scores(score(QUERY, documents))
    assert advanced
    expected = alone(model, documents[:2]) * (len(documents) // 2)
    assert np.abs(np.subtract(found, expected)).max() < SMALL


@pytest.mark.deep
def test_long_queries_are_computed_bit_by_bit(model: Reranker, advanced: list[int]) -> None:
    model.engine.submit(score(QUERY, MANY), model.adapter.prepare_input(score(QUERY, MANY)))
    model.engine._budget.tokens = 40.0
    events = model.engine.step()
    assert advanced == [40]
    assert events == []
    while model.engine.has_work:
        events += model.engine.step()
    assert len(advanced) > 1
    assert np.abs(np.subtract(scores_of(events, "r"), alone(model))).max() < SMALL


def test_heads_are_charged_and_released(model: Reranker) -> None:
    decoder = model.engine._model
    assert isinstance(decoder, GenerativeReranker)
    prepared = model.adapter.prepare_input(score(QUERY, MANY))
    for end in ("cancelled", "stop"):
        model.engine.submit(score(QUERY, MANY), prepared)
        model.engine.step()
        assert held(model) == decoder.prefix_bytes(prepared.shared) > 0
        if end == "cancelled":
            model.engine.cancel("r")
        (*_, (_, last)) = model.run()
        assert isinstance(last, Finished)
        assert last.reason == end
        assert held(model) == 0


@pytest.mark.deep
def test_requests_that_take_turns_take_each_others_room(
    model: Reranker, advanced: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder = model.engine._model
    assert isinstance(decoder, GenerativeReranker)
    queries = {"a": QUERY, "b": f"walks {QUERY}"}
    expected = {name: model.scores(score(query, MANY)) for name, query in queries.items()}
    once = sum(advanced)
    monkeypatch.setattr(row_queue, "MAX_HELD", decoder.prefix_bytes(200))
    model.engine._budget.tokens = 256.0
    events = model.run(*(named(name, query) for name, query in queries.items()))
    assert sum(advanced) > 2 * once, "each was computed again"
    for name in queries:
        assert np.abs(np.subtract(scores_of(events, name), expected[name])).max() < SMALL


@pytest.mark.deep
def test_heads_that_take_several_passes_do_not_take_each_others_room_for_ever(
    model: Reranker, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder = model.engine._model
    assert isinstance(decoder, GenerativeReranker)
    queries = {"a": QUERY, "b": f"walks {QUERY}"}
    expected = {name: model.scores(score(query, MANY)) for name, query in queries.items()}
    monkeypatch.setattr(row_queue, "MAX_HELD", decoder.prefix_bytes(200))
    monkeypatch.setattr(model.engine._budget, "observe", lambda tokens, seconds: None)
    model.engine._budget.tokens = 40.0
    for name, query in queries.items():
        request = named(name, query)
        model.engine.submit(request, model.adapter.prepare_input(request))
    events: list[tuple[str, InferenceEvent]] = []
    for _ in range(1_000):
        events += model.engine.step()
    assert not model.engine.has_work
    for name in queries:
        assert np.abs(np.subtract(scores_of(events, name), expected[name])).max() < SMALL


@pytest.mark.deep
def test_a_query_that_is_never_computed_before_its_model_is_unloaded_is_computed_with_its_documents(
    reranker: MakeReranker, model: Reranker
) -> None:
    large, small = named("large", QUERY), attrs.evolve(score("no", DOCUMENTS[:1]), id="small", client="small")
    job = Job(large, model.adapter.prepare_input(large))
    events: list[tuple[str, InferenceEvent]] = []
    for _ in range(12):
        following = reranker("qwen3-rerank")
        following.engine._budget.tokens = 40.0
        following.engine.resume(job)
        following.engine.submit(small, following.adapter.prepare_input(small))
        told: list[tuple[str, InferenceEvent]] = []
        while not told:
            told = following.engine.step()
        events += told
        job = (following.engine.suspend() or {})["large"]
    own = {event.index: event.value for name, event in events if name == "large" and isinstance(event, Score)}
    assert 0 < len(own) < len(MANY)
    expected = alone(model)
    assert all(abs(value - expected[index]) < SMALL for index, value in own.items())


@pytest.mark.deep
def test_without_room_for_the_query_pairs_are_computed_whole(model: Reranker) -> None:
    request = score(QUERY, MANY)
    longest = max(len(row.tokens) for row in model.adapter.prepare_input(request).rows)
    share = model.engine._memory.share
    share._account.limit = share.weights + model.engine._loaded_model().batch_bytes(1, longest)
    found = model.scores(request)
    assert share._account.statistics().peak <= share._account.limit - share.weights
    share._account.limit = None
    assert np.abs(np.subtract(found, alone(model))).max() < SMALL


def test_few_documents_share_passes_with_those_of_others_instead(
    model: Reranker, advanced: list[int]
) -> None:
    model.engine._budget.tokens = 65_536.0
    model.scores(score(QUERY, DOCUMENTS))
    assert advanced == []


@pytest.mark.deep
def test_a_query_takes_the_room_of_other_models_prefixes(model: Reranker, advanced: list[int]) -> None:
    share = model.engine._memory.share
    other = Share(share._account)

    def evict() -> None:
        other.charge_cached(0)

    other.on_eviction_request = evict
    share._account.limit = share.weights + 20_000_000
    assert other.charge_cached(20_000_000) == 20_000_000
    prepared = model.adapter.prepare_input(score(QUERY, MANY))
    found = model.scores(score(QUERY, MANY))
    assert sum(advanced) == prepared.shared
    assert np.abs(np.subtract(found, alone(model))).max() < SMALL
