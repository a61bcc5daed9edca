"""Texts to embed on the road of every request: left halfway, side by side, at a crash."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import attrs
import numpy as np
import pytest
import trio

from greenroom.actors.generation import Generation
from greenroom.actors.system import System, open_system
from greenroom.schemas.events import Admitted, Failed, Finished, InferenceEvent
from greenroom.schemas.lifecycle import ModelState
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.requests import EmbeddingInput, InferenceRequest
from greenroom.schemas.result_events import Vector
from greenroom.schemas.settings import Settings
from greenroom.tests.support.actors.actor_systems import (
    Faults,
    FaultyEngines,
    answer,
    eventually,
    state,
    status,
    until,
)
from greenroom.tests.support.engines.embedders import open_embedder, vectors
from greenroom.tests.support.models.tiny_encoders import TinyEncoder
from greenroom.tests.support.texts.random_texts import random_texts

TEXTS = random_texts(12)
MANY = random_texts(600, longest=12)


@pytest.fixture
def settings(tiny_encoder: TinyEncoder, tiny_model: Callable[..., Path]) -> Settings:
    return Settings(models=(str(tiny_encoder("bert")), str(tiny_model("qwen3"))))


def embedding(system: System, texts: tuple[str, ...], request_id: str = "r") -> Generation:
    """A request for vectors on its road."""
    request = InferenceRequest(request_id, ModelKey("bert"), EmbeddingInput(texts))
    return Generation(system.pool, request)


async def events_of(generation: Generation) -> list[InferenceEvent]:
    """Everything up to the end."""
    with generation:
        return [event async for event in generation]


async def first_vector(generation: Generation) -> None:
    """Wait until the first pass is computed."""
    async for event in generation:
        assert not isinstance(event, Failed)
        if isinstance(event, Vector):
            return


async def test_whoever_leaves_halfway_frees_the_slot_at_once(settings: Settings) -> None:
    async with open_system(settings) as system:
        with embedding(system, MANY) as left:
            await first_vector(left)

        async def is_free() -> bool:
            return (await status(system.pool, "bert")).slots == 0

        await eventually(is_free)
        assert len(vectors(await events_of(embedding(system, TEXTS)))) == len(TEXTS)


async def test_a_small_request_ends_while_a_large_one_is_computed(settings: Settings) -> None:
    async with open_system(settings) as system:
        with embedding(system, MANY, "large") as large:
            await first_vector(large)
            small = await events_of(embedding(system, ("hello",), "small"))
            computed = large.receive_ready()
            assert len(vectors(small)) == 1
            assert not any(isinstance(event, Finished) for event in computed)
            end = [event async for event in large][-1]
    assert isinstance(end, Finished)


async def test_another_model_takes_the_room_when_the_vectors_are_there(settings: Settings) -> None:
    alone = Settings(models=settings.models, max_loaded_models=1)
    async with open_system(alone) as system, trio.open_nursery() as nursery:
        ends: list[Finished | Failed] = []

        async def chat() -> None:
            ends.append((await answer(system.pool, "qwen3"))[1])

        with embedding(system, MANY) as large:
            await first_vector(large)
            nursery.start_soon(chat)
            events = [event async for event in large]
        assert isinstance(events[-1], Finished)
    assert isinstance(ends[0], Finished)


async def test_a_crash_fails_its_requests_and_the_next_loads_it_again(
    settings: Settings, tiny_encoder: TinyEncoder
) -> None:
    faults = Faults(crash={"large"})
    async with open_system(settings, engines=FaultyEngines(settings, faults)) as system:
        end = (await events_of(embedding(system, MANY, "large")))[-1]
        assert isinstance(end, Failed)
        assert end.problem.code == "model_crashed"
        found = vectors(await events_of(embedding(system, TEXTS)))
        assert await state(system.pool, "bert") is ModelState.READY
    np.testing.assert_allclose(found, open_embedder(tiny_encoder("bert")).embed(TEXTS), atol=1e-5)


async def test_a_system_that_ends_leaves_nothing_behind(settings: Settings) -> None:
    with trio.fail_after(120):
        async with open_system(settings) as system:
            large = embedding(system, MANY)
            await first_vector(large)
        large.close()


async def test_small_requests_need_no_slot_beside_large_ones_and_the_queue_is_bounded(
    settings: Settings,
) -> None:
    few = attrs.evolve(settings, max_batch=1, max_queue=3)
    async with open_system(few) as system:
        with (
            embedding(system, MANY, "first") as first,
            embedding(system, MANY, "second") as second,
            embedding(system, MANY, "third") as third,
        ):
            for large in (first, second, third):
                await until(large, Admitted)
            await first_vector(first)
            assert len(vectors(await events_of(embedding(system, ("hello",), "small")))) == 1
            assert (await status(system.pool, "bert")).running == 3, "none of the large ones has ended"
            with embedding(system, MANY, "fourth") as fourth:
                await until(fourth, Admitted)
                refused = (await events_of(embedding(system, ("hello",), "fifth")))[-1]
            assert isinstance(refused, Failed)
            assert refused.problem.code == "queue_full"
            assert refused.problem.detail.startswith("3 requests are already waiting")
            third.close()
            assert len(vectors(await events_of(embedding(system, ("hello",), "again")))) == 1
