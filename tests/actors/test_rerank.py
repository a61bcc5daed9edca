"""Rerank requests: concurrent with others, cancelled by clients, and interrupted by unloading."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import attrs
import pytest
import trio

from greenroom.actors.core.ref import Ref
from greenroom.actors.requests.generation import Generation
from greenroom.actors.system import open_system
from greenroom.schemas.events.events import Failed, Finished, InferenceEvent
from greenroom.schemas.events.result_events import Score
from greenroom.schemas.messages.requests import InferenceRequest, ScoreInput
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.protocols.pool_protocol import PoolMessage
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.actors.actor_systems import answer, eventually, status, until

KINDS = ("bert-rerank", "qwen3-rerank")


@pytest.fixture
def settings(tiny_encoder: Callable[..., Path], tiny_model: Callable[..., Path]) -> Settings:
    models = (*(tiny_encoder(kind) for kind in KINDS), tiny_model("llama"))
    return Settings(models=tuple(map(str, models)), shutdown_timeout=60.0)


def ranking(pool: Ref[PoolMessage], model: str, documents: int, ident: str = "r") -> Generation:
    """Return the generation of a rerank request with different documents."""
    pairs = tuple(("who walks", f"the garden {'and the man ' * (at % 7)}{at}") for at in range(documents))
    return Generation(pool, InferenceRequest(ident, ModelKey(model), ScoreInput(pairs), client=ident))


async def run(generation: Generation) -> tuple[dict[int, float], InferenceEvent]:
    with generation:
        events = [event async for event in generation]
    return {event.index: event.value for event in events if isinstance(event, Score)}, events[-1]


@pytest.mark.parametrize("kind", KINDS)
async def test_two_at_once_get_what_they_get_alone(settings: Settings, kind: str) -> None:
    async with open_system(settings) as system:
        alone, finished = await run(ranking(system.pool, kind, 9))
        assert isinstance(finished, Finished)
        assert len(alone) == 9
        found: dict[str, dict[int, float]] = {}

        async def ask(documents: int) -> None:
            found[str(documents)], end = await run(ranking(system.pool, kind, documents, str(documents)))
            assert isinstance(end, Finished)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, 9)
            nursery.start_soon(ask, 40)
        assert found["9"] == pytest.approx(alone, abs=1e-5)
        assert {at: found["40"][at] for at in alone} == pytest.approx(alone, abs=1e-5)


async def test_who_hangs_up_frees_the_model_for_others(settings: Settings) -> None:
    async with open_system(settings) as system:
        with ranking(system.pool, KINDS[0], 5_000) as generation:
            await until(generation, Score)
        await eventually(lambda: _rests(system.pool))
        scores, end = await run(ranking(system.pool, KINDS[0], 3))
        assert isinstance(end, Finished)
        assert len(scores) == 3


async def _rests(pool: Ref[PoolMessage]) -> bool:
    return (await status(pool, KINDS[0])).running == 0


@pytest.mark.deep
async def test_a_model_gives_way_to_another_and_ranks_the_rest_afterwards(settings: Settings) -> None:
    settings = attrs.evolve(settings, max_loaded_models=1)
    async with open_system(settings) as system:
        ended: list[InferenceEvent] = []

        async def rank() -> None:
            scores, end = await run(ranking(system.pool, KINDS[0], 300))
            assert len(scores) == 300
            ended.append(end)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(rank)
            await run(ranking(system.pool, KINDS[0], 1, "first"))
            _, finished = await answer(system.pool, "llama")
            assert isinstance(finished, Finished)
        assert isinstance(ended[0], Finished)


async def test_a_request_of_another_kind_is_refused_and_loads_nothing(settings: Settings) -> None:
    async with open_system(settings) as system:
        _, end = await answer(system.pool, KINDS[0])
        assert isinstance(end, Failed)
        assert (end.problem.status, end.problem.code) == (400, "unsupported_model_type")
        _, last = await run(ranking(system.pool, "llama", 2))
        assert isinstance(last, Failed)
        assert last.problem.code == "unsupported_model_type"
