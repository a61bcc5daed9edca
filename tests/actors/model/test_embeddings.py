"""Embedding requests: cancelled halfway, concurrent with others, and failed by a crash."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import attrs
import numpy as np
import pytest
import trio

from greenroom.actors.core.ref import ask_actor
from greenroom.actors.pool import pool_state
from greenroom.actors.requests.generation import Generation
from greenroom.actors.system import System, open_system
from greenroom.engine.encoding import row_queue
from greenroom.schemas.events.events import Admitted, Failed, Finished, InferenceEvent
from greenroom.schemas.events.result_events import Vector
from greenroom.schemas.messages.requests import EmbeddingInput, InferenceRequest
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.models.lifecycle import ModelState
from greenroom.schemas.problems import NoRoomError
from greenroom.schemas.protocols.pool_protocol import Unloading, UnloadModel
from greenroom.schemas.settings.settings import Settings
from greenroom.testing import Faults, FaultyEngines
from greenroom.tests.support.actors.actor_systems import (
    answer,
    eventually,
    state,
    status,
    until,
)
from greenroom.tests.support.engines.embedders import open_embedder, vectors
from greenroom.tests.support.engines.watched_engines import PatientEngines
from greenroom.tests.support.models.tiny_encoders import TinyEncoder
from greenroom.tests.support.texts.random_texts import random_texts

TEXTS = random_texts(12)
MANY = random_texts(600, longest=12)


@pytest.fixture
def settings(tiny_encoder: TinyEncoder, tiny_model: Callable[..., Path]) -> Settings:
    return Settings(models=(str(tiny_encoder("bert")), str(tiny_model("qwen3"))))


@pytest.fixture
def short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit passes to a few rows, and a model's time slice to one pass."""
    monkeypatch.setattr(pool_state, "MAX_TIME_SLICE", 0.0)
    monkeypatch.setattr(row_queue, "MAX_ROWS", 2)


def embedding(system: System, texts: tuple[str, ...], request_id: str = "r") -> Generation:
    """Return the generation of an embedding request."""
    request = InferenceRequest(request_id, ModelKey("bert"), EmbeddingInput(texts))
    return Generation(system.pool, request)


async def events_of(generation: Generation) -> list[InferenceEvent]:
    """Return all events of a generation."""
    with generation:
        return [event async for event in generation]


async def events_of_all(system: System, asked: dict[str, tuple[str, ...]]) -> dict[str, list[InferenceEvent]]:
    """Return the events of several concurrent embedding requests, by request id."""
    found: dict[str, list[InferenceEvent]] = {}

    async def ask(name: str, texts: tuple[str, ...]) -> None:
        found[name] = await events_of(embedding(system, texts, name))

    async with trio.open_nursery() as nursery:
        for name, texts in asked.items():
            nursery.start_soon(ask, name, texts)
    return found


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
    async with open_system(settings, engines=PatientEngines(settings, Faults(), "large")) as system:
        with embedding(system, MANY, "large") as large:
            await first_vector(large)
            small = await events_of(embedding(system, ("hello",), "small"))
            computed = large.receive_ready()
            assert len(vectors(small)) == 1
            assert not any(isinstance(event, Finished) for event in computed)


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


@pytest.mark.deep
async def test_a_model_whose_slice_is_over_gives_its_room_up_between_two_passes(
    settings: Settings, short_slices: None, tiny_encoder: TinyEncoder
) -> None:
    faults = Faults()
    alone = attrs.evolve(settings, max_loaded_models=1)
    async with open_system(alone, engines=FaultyEngines(alone, faults)) as system:
        with embedding(system, MANY, "large") as large, embedding(system, MANY, "other") as other:
            await until(other, Admitted)
            await first_vector(large)
            assert isinstance((await answer(system.pool, "qwen3"))[1], Finished)
            assert not any(isinstance(event, Finished) for event in large.receive_ready())
            ends = [[event async for event in generation][-1] for generation in (large, other)]
            assert all(isinstance(end, Finished) for end in ends)
        assert faults.loads == ["bert", "qwen3", "bert"]


@pytest.mark.deep
async def test_vectors_are_whole_however_often_their_model_was_unloaded(
    settings: Settings, short_slices: None, tiny_encoder: TinyEncoder
) -> None:
    one, two = str(tiny_encoder("bert")), str(tiny_encoder("xlm-roberta"))
    alone = attrs.evolve(settings, models=(one, two), max_loaded_models=1)
    faults = Faults()
    found: dict[str, list[InferenceEvent]] = {}
    async with open_system(alone, engines=FaultyEngines(alone, faults)) as system:

        async def embed(model: str) -> None:
            request = InferenceRequest("r", ModelKey(model), EmbeddingInput(TEXTS))
            found[model] = await events_of(Generation(system.pool, request))

        async with trio.open_nursery() as nursery:
            for model in (one, two):
                nursery.start_soon(embed, Path(model).name)
    assert len(faults.loads) > 3, "they took turns"
    for folder in (one, two):
        events = found[Path(folder).name]
        assert sum(isinstance(event, Vector) for event in events) == len(TEXTS)
        expected = open_embedder(Path(folder)).embed(TEXTS)
        np.testing.assert_allclose(vectors(events), expected, atol=1e-4)


async def test_whoever_leaves_while_another_model_has_the_room_is_not_loaded_for(
    settings: Settings, short_slices: None
) -> None:
    faults = Faults(hang={"chat"})
    alone = attrs.evolve(settings, max_loaded_models=1)
    async with open_system(alone, engines=PatientEngines(alone, faults, "large")) as system:
        with embedding(system, MANY, "large") as large:
            await first_vector(large)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(answer, system.pool, "qwen3", "chat")
                await trio.to_thread.run_sync(faults.hangs.wait)
                waiting = await status(system.pool, "bert")
                assert (waiting.running, waiting.waiting) == (0, 1)
                large.close()
                faults.release.set()
        assert (await status(system.pool, "bert")).waiting == 0
        assert isinstance((await answer(system.pool, "qwen3"))[1], Finished)
    assert faults.loads == ["bert", "qwen3"]


async def test_a_model_that_cannot_be_loaded_again_fails_those_whom_it_had_left(
    settings: Settings, short_slices: None
) -> None:
    faults = Faults()
    alone = attrs.evolve(settings, max_loaded_models=1)
    async with open_system(alone, engines=PatientEngines(alone, faults, "large")) as system:
        with embedding(system, MANY, "large") as large:
            await first_vector(large)
            faults.load["bert"] = RuntimeError("planted")
            assert isinstance((await answer(system.pool, "qwen3"))[1], Finished)
            end = [event async for event in large][-1]
        assert isinstance(end, Failed)
        assert end.problem.code == "load_failed"
        assert (await status(system.pool, "bert")).slots == 0
        assert isinstance((await answer(system.pool, "qwen3"))[1], Finished)


async def test_a_load_that_is_refused_for_now_lets_those_wait_whom_the_model_had_left(
    settings: Settings, short_slices: None
) -> None:
    faults = Faults()
    alone = attrs.evolve(settings, max_loaded_models=1)
    async with open_system(alone, engines=PatientEngines(alone, faults, "large")) as system:
        with embedding(system, MANY, "large") as large:
            await first_vector(large)
            faults.load["bert"] = NoRoomError("bert", 2, 1)
            assert isinstance((await answer(system.pool, "qwen3"))[1], Finished)

            async def is_refused() -> bool:
                waits = await state(system.pool, "bert") is ModelState.WAITING
                return waits and faults.loads.count("bert") > 1

            await eventually(is_refused)
            del faults.load["bert"]
            assert isinstance([event async for event in large][-1], Finished)


async def test_a_model_whose_files_have_changed_for_the_worse_fails_those_whom_it_had_left(
    settings: Settings, short_slices: None, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(settings.models[0], tmp_path / "bert"))
    faults = Faults(hang={"chat"})
    alone = attrs.evolve(settings, models=(str(folder), settings.models[1]), max_loaded_models=1)
    async with open_system(alone, engines=PatientEngines(alone, faults, "large")) as system:
        with embedding(system, MANY, "large") as large:
            await first_vector(large)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(answer, system.pool, "qwen3", "chat")
                await trio.to_thread.run_sync(faults.hangs.wait)
                (folder / "tokenizer.json").write_text("{")
                await ask_actor(system.pool, UnloadModel(ModelKey("bert"), reopens=True), Unloading)
                faults.release.set()
            end = [event async for event in large][-1]
        assert isinstance(end, Failed)
        assert end.problem.code == "load_failed"
        assert (await status(system.pool, "bert")).slots == 0


async def test_a_crash_fails_only_the_requests_that_were_begun(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, tiny_encoder: TinyEncoder
) -> None:
    monkeypatch.setattr(row_queue, "MAX_ROWS", 1)
    faults = Faults(hang={"begun"})
    told: dict[str, list[InferenceEvent]] = {}
    async with open_system(settings, engines=FaultyEngines(settings, faults)) as system:

        async def ask(name: str) -> None:
            told[name] = await events_of(embedding(system, TEXTS, name))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, "begun")
            await trio.to_thread.run_sync(faults.hangs.wait)
            nursery.start_soon(ask, "other")

            async def is_waiting() -> bool:
                return (await status(system.pool, "bert")).running == 2

            await eventually(is_waiting)
            faults.crash.add("begun")
            faults.release.set()
        assert faults.loads == ["bert", "bert"]
    end = told["begun"][-1]
    assert isinstance(end, Failed)
    assert end.problem.code == "model_crashed"
    expected = open_embedder(tiny_encoder("bert")).embed(TEXTS)
    np.testing.assert_allclose(vectors(told["other"]), expected, atol=1e-4)


async def test_requests_that_outlive_crashes_fail_with_the_third(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_queue, "MAX_ROWS", 1)
    names = ("one", "two", "three", "four")
    faults = Faults(crash=set(names))
    async with open_system(settings, engines=FaultyEngines(settings, faults)) as system:
        told = await events_of_all(system, dict.fromkeys(names, TEXTS))
        ends = [events[-1] for events in told.values()]
        details = [end.problem.detail for end in ends if isinstance(end, Failed)]
        assert len(details) == 4
        assert sum("tries it again later" in detail for detail in details) == 1
        assert faults.loads == ["bert"] * 3
        assert (await status(system.pool, "bert")).slots == 0


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
    with trio.fail_after(300):
        async with open_system(settings) as system:
            large = embedding(system, MANY)
            await first_vector(large)
        large.close()


async def test_small_requests_need_no_slot_beside_large_ones_and_the_queue_is_bounded(
    settings: Settings,
) -> None:
    few = attrs.evolve(settings, max_batch=1, max_queue=3)
    engines = PatientEngines(few, Faults(), "first", "second", "third", "fourth")
    async with open_system(few, engines=engines) as system:
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
