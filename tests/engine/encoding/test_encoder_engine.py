"""Concurrent requests: fairness, cancellation at each step, and memory limits."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from greenroom.engine.encoding import row_queue
from greenroom.engine.resources.memory_account import Share
from greenroom.schemas.events.events import Finished, InferenceEvent
from greenroom.schemas.events.result_events import Vector
from greenroom.schemas.problems import ProblemError
from greenroom.tests.support.engines.embedders import (
    Embedder,
    collect,
    embedding_request,
    open_embedder,
    vectors,
)
from greenroom.tests.support.models.tiny_encoders import TinyEncoder
from greenroom.tests.support.texts.random_texts import random_texts


@pytest.fixture
def embedder(tiny_encoder: TinyEncoder) -> Embedder:
    return open_embedder(tiny_encoder("bert"))


@pytest.mark.deep
def test_requests_side_by_side_get_the_vectors_that_they_get_alone(embedder: Embedder) -> None:
    asked = {f"{at}": random_texts(8, seed=at) for at in range(12)}
    for request_id, texts in asked.items():
        embedder.submit(texts, request_id)
    answered = embedder.run()
    for request_id, texts in asked.items():
        np.testing.assert_allclose(vectors(answered[request_id]), embedder.embed_alone(texts), atol=1e-4)


@pytest.mark.deep
def test_a_small_request_is_answered_while_a_large_one_is_computed(embedder: Embedder) -> None:
    embedder.submit(random_texts(400), "large")
    events: dict[str, list[InferenceEvent]] = {}
    collect(embedder.engine.step(), events)
    embedder.submit(["hello"], "small")
    for _ in range(2):
        collect(embedder.engine.step(), events)
    assert isinstance(events["small"][-1], Finished)
    assert not isinstance(events["large"][-1], Finished)
    assert len(vectors([*events["large"], *embedder.run()["large"]])) == 400


def test_a_cancelled_request_ends_at_the_next_step_with_what_it_used(embedder: Embedder) -> None:
    embedder.submit(random_texts(400), "large")
    embedder.submit(["hello"], "small")
    events: dict[str, list[InferenceEvent]] = {}
    collect(embedder.engine.step(), events)
    embedder.engine.cancel("large")
    embedder.engine.cancel("nobody")
    collect(embedder.engine.step(), events)
    end = events["large"][-1]
    assert isinstance(end, Finished)
    assert end.reason == "cancelled"
    assert 0 < end.usage.prompt < 20_000
    computed = sum(isinstance(event, Vector) for event in events["large"])
    for request_id, later in embedder.run().items():
        events.setdefault(request_id, []).extend(later)
    assert sum(isinstance(event, Vector) for event in events["large"]) == computed
    assert len(vectors(events["small"])) == 1
    assert not embedder.engine.has_work


@pytest.mark.deep
def test_requests_go_on_in_the_next_engine_where_this_one_has_left_them(
    embedder: Embedder, tiny_encoder: TinyEncoder
) -> None:
    texts = random_texts(100)
    embedder.submit(texts, "large")
    embedder.submit(texts, "other", client="other")
    events: dict[str, list[InferenceEvent]] = {}
    collect(embedder.engine.step(), events)
    suspended = embedder.engine.suspend()
    assert suspended is not None
    assert not embedder.engine.has_work
    following = open_embedder(tiny_encoder("bert"))
    for job in suspended.values():
        following.engine.resume(job)
    for request_id, later in following.run().items():
        assert 0 < len(events[request_id]) < 100
        events[request_id] += later
    expected = following.embed(texts)
    tokens = following.adapter.prepare_input(embedding_request(texts)).prompt_tokens
    for told in events.values():
        assert len(told) == 101, "each row is computed once"
        np.testing.assert_allclose(vectors(told), expected, atol=1e-4)
        assert isinstance(told[-1], Finished)
        assert told[-1].usage.prompt == tokens


def test_what_has_ended_is_told_before_requests_are_given_away(embedder: Embedder) -> None:
    for request_id in ("left", "stays"):
        embedder.submit(random_texts(40), request_id)
    embedder.engine.cancel("left")
    assert embedder.engine.suspend() is None
    assert [name for name, event in embedder.engine.step() if isinstance(event, Finished)] == ["left"]
    suspended = embedder.engine.suspend()
    assert suspended is not None
    assert set(suspended) == {"stays"}


def test_usage_counts_every_token_once(embedder: Embedder) -> None:
    embedder.submit([(2, 300, 3), (2, 3)])
    [*_, end] = embedder.run()["r"]
    assert isinstance(end, Finished)
    assert end.usage.prompt == 5
    assert end.usage.generated == 0
    assert end.reason == "stop"


def test_weights_and_passes_are_charged_and_freed(embedder: Embedder) -> None:
    def charged() -> tuple[int, int]:
        statistics = embedder.account.statistics()
        return statistics.weights, statistics.running

    weights, running = charged()
    assert weights > 300_000
    assert running == 0
    embedder.embed(random_texts(80))
    assert charged() == (weights, 0)
    assert embedder.account.statistics().peak > 0
    embedder.engine.close()
    assert charged() == (0, 0)
    assert not embedder.engine.has_work


def test_passes_stay_within_the_account(embedder: Embedder) -> None:
    texts = random_texts(80)
    unbounded = embedder.embed(texts)
    largest = embedder.engine._loaded_model().batch_bytes(1, 128)
    embedder.account.limit = embedder.account.statistics().weights + 3 * largest
    before = embedder.account.statistics().peak
    np.testing.assert_allclose(embedder.embed(texts), unbounded, atol=1e-4)
    assert embedder.account.statistics().peak <= max(before, 3 * largest)


def test_a_text_that_fits_into_no_memory_is_refused(embedder: Embedder) -> None:
    embedder.account.limit = embedder.account.statistics().weights + 1_000
    with pytest.raises(ProblemError, match="memory_bytes") as refused:
        embedder.submit(random_texts(1))
    assert refused.value.problem.status == 400


def test_a_pass_waits_until_another_model_gives_memory_back(embedder: Embedder) -> None:
    other = Share(embedder.account)
    embedder.account.limit = embedder.account.statistics().weights + 100_000_000
    assert other.charge_running(100_000_000)
    embedder.submit(["hello"])
    assert embedder.engine.step() == []
    assert embedder.engine.has_work
    other.charge_running(0)
    assert len(vectors(embedder.run()["r"])) == 1


def test_who_leaves_while_a_pass_waits_leaves_no_memory_reserved(embedder: Embedder) -> None:
    other = Share(embedder.account)
    embedder.account.limit = embedder.account.statistics().weights + 100_000_000
    assert other.charge_running(100_000_000)
    embedder.submit(["hello"])
    assert embedder.engine.step() == []
    other.charge_running(0)
    assert not other.charge_running(100_000_000, new=True), "the pass comes first"
    embedder.engine.cancel("r")
    assert other.charge_running(100_000_000, new=True)


@pytest.mark.deep
def test_what_mlx_keeps_for_reuse_stays_bounded(embedder: Embedder, monkeypatch: pytest.MonkeyPatch) -> None:
    mx.clear_cache()
    embedder.embed(random_texts(80))
    kept = mx.get_cache_memory()
    mx.clear_cache()
    monkeypatch.setattr(row_queue, "MAX_KEPT", kept // 10)
    embedder.embed(random_texts(80))
    assert mx.get_cache_memory() <= kept // 10
