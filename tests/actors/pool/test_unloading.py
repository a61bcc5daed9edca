"""Unloads by operators and by time, and what they are measured to free."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import attrs
import structlog
import trio

from greenroom.actors.core.ref import answer_or_failed
from greenroom.actors.requests.generation import Generation
from greenroom.actors.system import System, open_system
from greenroom.engine.catalog.kind_detection import detect
from greenroom.engine.loading.load_size import load_size, why_pins_do_not_fit
from greenroom.schemas.events.events import Failed, Finished, InferenceEvent, TextDelta
from greenroom.schemas.messages.requests import InferenceRequest, KeepAlive, RawInput
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.models.lifecycle import ModelState
from greenroom.schemas.protocols.pool_protocol import ModelUnloaded, UnloadModel
from greenroom.schemas.settings.settings import ModelSettings, Settings
from greenroom.testing import Faults, FaultyEngines, OpenScripted
from greenroom.tests.support.actors.actor_systems import (
    answer,
    eventually,
    generate,
    state,
    status,
    until,
)
from greenroom.tests.support.actors.held_loads import waiting_for_load
from greenroom.tests.support.models.load_sizes import needs

QWEN = ModelKey("qwen3")


async def unload(system: System, name: str = "qwen3", **more: Any) -> ModelUnloaded | Failed:
    return await answer_or_failed(system.pool, UnloadModel(ModelKey(name), **more), ModelUnloaded)


async def test_an_unload_by_an_operator_is_measured_and_reported(models: tuple[str, ...]) -> None:
    with structlog.testing.capture_logs() as logs:
        async with open_system(Settings(models=models, shutdown_timeout=60.0)) as system:
            await answer(system.pool, "qwen3")
            unloaded = await unload(system)
            assert await state(system.pool, "qwen3") is ModelState.IDLE
            assert await unload(system) == ModelUnloaded(QWEN, 0)
            missing = await unload(system, "nothing")
            assert isinstance(missing, Failed)
            assert missing.problem.status == 404
            assert isinstance((await answer(system.pool, "qwen3"))[1], Finished)  # loaded again
    assert isinstance(unloaded, ModelUnloaded)
    freed = [line for line in logs if line["event"] == "memory freed"]
    assert [line["model"] for line in freed] == ["qwen3", "qwen3"]
    assert all(line["measured"] and line["freed"] >= 0.95 * line["expected"] for line in freed)
    assert unloaded.freed == freed[0]["freed"] > 0
    assert not [line for line in logs if line["event"] == "memory not freed"]


async def test_an_unload_waits_for_the_leases_and_later_requests_load_the_model_again(
    models: tuple[str, ...],
) -> None:
    async with open_system(Settings(models=models, shutdown_timeout=60.0)) as system:
        with generate(system.pool, "qwen3", max_tokens=20_000) as running:
            await until(running, TextDelta)
            async with trio.open_nursery() as nursery:
                ends: list[Any] = []

                async def ask_to_unload() -> None:
                    ends.append(await unload(system))

                nursery.start_soon(ask_to_unload)
                with generate(system.pool, "qwen3", "late") as late:
                    await until(running, TextDelta)
                    assert await state(system.pool, "qwen3") is ModelState.READY
                    assert not ends
                    running.close()
                    assert isinstance((await until(late, Finished))[-1], Finished)
        assert isinstance(ends[0], ModelUnloaded)
        assert ends[0].freed > 0


async def test_an_unload_during_a_load_serves_those_who_wait_for_it_and_loads_nothing_twice(
    models: tuple[str, ...],
) -> None:
    settings, faults = Settings(models=models, shutdown_timeout=60.0), Faults(gate=threading.Event())
    async with open_system(settings, engines=FaultyEngines(settings, faults)) as system:
        async with waiting_for_load(system, faults, "qwen3") as ends:
            with trio.move_on_after(0.01):  # the wish remains when its asker has left
                await unload(system)
        unloaded = await unload(system)
        assert isinstance(unloaded, ModelUnloaded)
        assert unloaded.freed > 0
        assert [type(end) for end in ends] == [Finished]
        assert faults.loads == ["qwen3"]
        assert await state(system.pool, "qwen3") is ModelState.IDLE


async def test_what_an_unload_leaves_in_memory_is_named(models: tuple[str, ...], monkeypatch: Any) -> None:
    from greenroom.engine.resources import residence

    kept: list[Any] = []
    note = residence.Residence.add_weights

    def note_and_keep(self: Any, weights: Any) -> None:
        weights = list(weights)
        kept.extend(array for _, array in weights)
        note(self, weights)

    monkeypatch.setattr(residence.Residence, "add_weights", note_and_keep)
    monkeypatch.setattr(residence, "_SLACK", 0)
    with structlog.testing.capture_logs() as logs:
        async with open_system(Settings(models=models, shutdown_timeout=60.0)) as system:
            await answer(system.pool, "qwen3")
            unloaded = await unload(system)
    assert isinstance(unloaded, ModelUnloaded)
    (warning,) = (line for line in logs if line["event"] == "memory not freed")
    assert warning["log_level"] == "warning"
    assert warning["model"] == "qwen3"
    assert any(text.startswith("weights ") for text in warning["held"])
    assert unloaded.freed < 0.1 * warning["expected"]


async def test_a_model_with_a_time_to_live_is_unloaded_when_it_is_idle_for_so_long(
    models: tuple[str, ...],
) -> None:
    tables = (("llama", ModelSettings(pinned=True)), ("*", ModelSettings(ttl=0.2)))
    settings = Settings(models=models, model_settings=tables, shutdown_timeout=60.0)
    async with open_system(settings) as system:
        await answer(system.pool, "llama")
        await answer(system.pool, "qwen3")

        async def gone() -> bool:
            return await state(system.pool, "qwen3") is ModelState.IDLE

        await eventually(gone)
        assert await state(system.pool, "llama") is ModelState.READY
        refused = await unload(system, "llama", spares_pinned=True)
        assert isinstance(refused, Failed)
        assert (refused.problem.status, refused.problem.code) == (409, "model_pinned")
        assert isinstance(await unload(system, "llama"), ModelUnloaded)


async def test_a_wish_to_stay_ends_with_the_load_that_fails(
    scripted_system: OpenScripted, faults: Faults
) -> None:
    async def end(client: str, keep_alive: KeepAlive | None = None) -> InferenceEvent:
        asked = RawInput("Hello!")
        request = InferenceRequest("r", ModelKey("small"), asked, client=client, keep_alive=keep_alive)
        with Generation(system.pool, request) as events:
            return [event async for event in events][-1]

    tables = (("*", ModelSettings(ttl=3600.0)),)
    async with scripted_system(["Yes."], "small", model_settings=tables) as system:
        faults.load["small"] = RuntimeError("planted")
        assert isinstance(await end("one", KeepAlive(None)), Failed)
        faults.load.clear()
        assert isinstance(await end("two"), Finished)
        assert (await status(system.pool, "small")).expires_at is not None


async def test_models_are_preloaded_into_free_memory_and_the_others_are_a_warning(
    models: tuple[str, ...],
) -> None:
    room = needs(models[0]) + needs(models[1]) // 2
    tables = (
        ("nothing", ModelSettings(preload=True)),
        ("llama", ModelSettings(preload=True)),
        ("qwen3", ModelSettings(preload=True, pinned=True)),
    )
    settings = Settings(models=models, model_settings=tables, memory_bytes=room, shutdown_timeout=60.0)
    with structlog.testing.capture_logs() as logs:
        async with open_system(settings) as system:

            async def warned() -> bool:
                return len([line for line in logs if line["event"] == "model not preloaded"]) == 2

            await eventually(warned)

            async def loaded() -> bool:
                return await state(system.pool, "qwen3") is ModelState.READY

            await eventually(loaded)
            assert await state(system.pool, "llama") is ModelState.IDLE
            _, refused = await answer(system.pool, "llama")
            assert isinstance(refused, Failed)  # the pinned model stays
            assert (refused.problem.status, refused.problem.code) == (507, "insufficient_memory")
    warnings = [line for line in logs if line["event"] == "model not preloaded"]
    assert {line["model"] for line in warnings} == {"nothing", "llama"}
    assert all(line["log_level"] == "warning" for line in warnings)


async def test_models_are_preloaded_by_pattern(models: tuple[str, ...]) -> None:
    settings = Settings(
        models=models[:2], model_settings=(("*", ModelSettings(preload=True)),), shutdown_timeout=60.0
    )
    async with open_system(settings) as system:

        async def loaded() -> bool:
            states = [await state(system.pool, name) for name in ("qwen3", "llama")]
            return states == [ModelState.READY] * 2

        await eventually(loaded)


def test_pins_that_exceed_the_memory_together_are_told_with_their_sum(models: tuple[str, ...]) -> None:
    sizes = [load_size(Path(model), detect(Path(model)), Settings()).least for model in models[:2]]
    settings = Settings(models=models, model_settings=(("qwen3", ModelSettings(pinned=True)),))
    assert why_pins_do_not_fit(settings) is None
    both = (*settings.model_settings, ("lla*", ModelSettings(pinned=True)))
    room = attrs.evolve(settings, model_settings=both, memory_bytes=sum(sizes))
    assert why_pins_do_not_fit(room) is None
    why = why_pins_do_not_fit(attrs.evolve(room, memory_bytes=sum(sizes) - 1))
    assert why is not None
    assert f"{sum(sizes):,} bytes together" in why
