"""Models of several kinds that come and go in little memory: nothing is lost, leaked or decided twice."""

from __future__ import annotations

import os
import random
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import mlx.core as mx
import pytest
import structlog
import trio

from greenroom.actors.core.ref import answer_or_failed
from greenroom.actors.engines.engine_protocol import Engine
from greenroom.actors.pool.lease_queue import Granted
from greenroom.actors.pool.pool_state import PoolState
from greenroom.actors.requests.generation import Generation
from greenroom.actors.system import System, open_system
from greenroom.schemas.events.events import Failed, Finished, InferenceEvent
from greenroom.schemas.messages.requests import EmbeddingInput, InferenceRequest, KeepAlive
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.models.lifecycle import ModelState
from greenroom.schemas.protocols.pool_protocol import (
    Acquire,
    DescribePool,
    ModelUnloaded,
    PoolStatus,
    UnloadModel,
)
from greenroom.schemas.settings.settings import ModelSettings, Settings
from greenroom.testing import Faults, FaultyEngines
from greenroom.tests.actors.pool.test_replay import events_in, replay
from greenroom.tests.support.actors.actor_systems import (
    chat,
    eventually,
    state,
)
from greenroom.tests.support.models.load_sizes import needs
from greenroom.tests.support.models.tiny_encoders import TinyEncoder
from greenroom.tests.support.models.tiny_vision_models import TinyVisionModel

MEGABYTE = 1 << 20
WISHES = (*[None] * 9, KeepAlive(None), KeepAlive(0.0), KeepAlive(0.05), KeepAlive(300.0))
CRASHES = 2
"""Crashes of each model: a third within a minute would refuse its requests."""


class ForgottenEngines(FaultyEngines):
    """Faulty engines that nothing but their model's thread refers to."""

    def load_engine(self, *arguments: Any) -> Engine[Any]:
        engine = super().load_engine(*arguments)
        self._faults.engines.clear()
        return engine


def request_to(name: str, number: int, chance: random.Random) -> InferenceRequest:
    if name == "bert":
        texts = ("hello", "a longer text", "more")
        request = InferenceRequest(str(number), ModelKey(name), EmbeddingInput(texts))
    else:
        request = chat(name, str(number), f"Story {number}", max_tokens=chance.choice((2, 8, 24)))
    wish = chance.choice(WISHES)
    return InferenceRequest(request.id, request.key, request.input, request.overrides, keep_alive=wish)


async def end_of(system: System, request: InferenceRequest) -> Finished | Failed:
    end: InferenceEvent | None = None
    with Generation(system.pool, request) as generation:
        async for event in generation:
            end = event
    assert isinstance(end, Finished | Failed)
    return end


async def unload(system: System, name: str) -> ModelUnloaded | Failed:
    return await answer_or_failed(system.pool, UnloadModel(ModelKey(name)), ModelUnloaded)


async def unload_all(system: System, names: tuple[str, ...]) -> int:
    """Unload all models; return MLX's active memory in bytes."""
    for name in names:
        assert isinstance(await unload(system, name), ModelUnloaded)
    return mx.get_active_memory()


async def use_models(models: tuple[str, ...], requests: int) -> None:
    """Send mixed requests with hang-ups, unloads, crashes, pins and times to live, and check the whole."""
    names = tuple(Path(model).name for model in models)
    sizes = sorted(map(needs, models))
    tables = ((names[0], ModelSettings(ttl=2.0)), (names[1], ModelSettings(pinned=True)))
    settings = Settings(
        models=models,
        model_settings=tables,
        max_batch=2,
        # Two of the large ones never fit, however little their steps are found to take.
        memory_bytes=sizes[-1] + sizes[0],
        shutdown_timeout=60.0,
    )
    chance, faults = random.Random(11), Faults()
    failures, served, crashes = list[Failed](), Counter[str](), Counter[str]()
    numbers = iter(range(requests))
    with structlog.testing.capture_logs() as logs:
        async with open_system(settings, engines=ForgottenEngines(settings, faults)) as system:
            for name in names:
                assert isinstance(await end_of(system, request_to(name, -1, chance)), Finished)
            start = await unload_all(system, names)

            async def use() -> None:
                for number in numbers:
                    name, kind = chance.choice(names), chance.random()
                    request = request_to(name, number, chance)
                    if kind < 0.03:
                        assert isinstance(await unload(system, name), ModelUnloaded)
                    elif kind < 0.2:
                        with trio.move_on_after(chance.random() / 5):
                            await end_of(system, request)
                    else:
                        if kind < 0.25 and crashes[name] < CRASHES:
                            crashes[name] += 1
                            faults.crash.add(request.id)
                        end = await end_of(system, request)
                        served[name] += isinstance(end, Finished)
                        if isinstance(end, Failed):
                            failures.append(end)

            async with trio.open_nursery() as nursery:
                for _ in range(6):
                    nursery.start_soon(use)

            async def nothing_is_left() -> bool:
                described = await system.pool.ask(DescribePool(), PoolStatus)
                assert isinstance(described, PoolStatus)
                return all(model.running == model.waiting == model.slots == 0 for model in described.models)

            await eventually(nothing_is_left)
            left = await unload_all(system, names)
    assert min(served.values()) > 0
    assert served.keys() == set(names)
    codes = Counter(failure.problem.code for failure in failures)
    assert codes.keys() <= {"model_crashed"}  # by the crash of a request that was computed beside them
    assert len(failures) <= sum(crashes.values()) * settings.max_batch * 3
    assert abs(left - start) < 2 * MEGABYTE
    assert not [line for line in logs if line["event"] == "memory not freed"]
    decisions = replay(events_in(logs), PoolState(limit=settings.memory_bytes))
    assert any(decided.plan.unload for decided in decisions)
    assert any(decided.plan.expired for decided in decisions)


@pytest.fixture
def three_kinds(
    tiny_model: Callable[..., Path], tiny_encoder: TinyEncoder, tiny_vision_model: TinyVisionModel
) -> tuple[str, ...]:
    return (str(tiny_model("qwen3")), str(tiny_encoder("bert")), str(tiny_vision_model("qwen2_vl")))


@pytest.mark.deep
async def test_mixed_requests_in_room_for_two_of_three_are_all_answered(three_kinds: tuple[str, ...]) -> None:
    await use_models(three_kinds, 80)


@pytest.mark.soak
async def test_thousands_of_mixed_requests_in_room_for_two_of_three_are_all_answered(
    three_kinds: tuple[str, ...],
) -> None:
    await use_models(three_kinds, 2_000)


async def load_and_unload(model: str, cycles: int) -> list[tuple[int, int, int]]:
    """Return MLX's active bytes, the process's threads and its open files after each unload."""
    name, seen = Path(model).name, list[tuple[int, int, int]]()
    async with open_system(Settings(models=(model,), shutdown_timeout=60.0)) as system:
        for _ in range(cycles):
            granted: Any = await answer_or_failed(system.pool, Acquire(ModelKey(name)), Granted)
            assert isinstance(granted, Granted), granted
            granted.lease.close()
            assert isinstance(await unload(system, name), ModelUnloaded)
            seen.append((mx.get_active_memory(), threading.active_count(), len(os.listdir("/dev/fd"))))
    return seen


def check_growth(seen: list[tuple[int, int, int]], warm: int) -> None:
    memory, threads, files = zip(*seen[warm:], strict=True)
    assert max(memory) - memory[0] < 2 * MEGABYTE
    assert max(threads[-warm:]) <= max(threads[:warm]) + 1  # the next model's tokenizer thread may begin
    assert max(files[-warm:]) <= max(files[:warm]) + 2


async def test_a_few_loads_and_unloads_leave_nothing(tiny_model: Callable[..., Path]) -> None:
    check_growth(await load_and_unload(str(tiny_model("qwen3")), 6), 3)


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["text", "vision", "embeddings", "rerank", "speech", "transcription"])
async def test_200_loads_and_unloads_of_each_kind_leave_nothing(
    kind: str,
    tiny_model: Callable[..., Path],
    tiny_vision_model: TinyVisionModel,
    tiny_encoder: TinyEncoder,
    tiny_pocket: Path,
    tiny_whisper: Path,
) -> None:
    folders: dict[str, Callable[[], Path]] = {
        "text": lambda: tiny_model("qwen3"),
        "vision": lambda: tiny_vision_model("qwen2_vl"),
        "embeddings": lambda: tiny_encoder("bert"),
        "rerank": lambda: tiny_encoder("bert-rerank"),
        "speech": lambda: tiny_pocket,
        "transcription": lambda: tiny_whisper,
    }
    check_growth(await load_and_unload(str(folders[kind]()), 200), 20)


async def second_turn(system: System, texts: str) -> tuple[Finished, Finished]:
    """Return the ends of a chat's first turn, and of its next one after another model had the memory."""

    async def turn(prompt: str) -> Finished:
        end = await end_of(system, chat("qwen3", "r", prompt, max_tokens=2))
        assert isinstance(end, Finished), end
        return end

    first = await turn(texts)
    assert isinstance(await end_of(system, chat("llama", "other", "Hello")), Finished)
    return first, await turn(texts + " And then?")


@pytest.mark.parametrize("on_disk", [pytest.param(False, marks=pytest.mark.deep), True])
@pytest.mark.parametrize("words", [150, pytest.param(1_000, marks=pytest.mark.soak)])
@pytest.mark.deep
async def test_a_long_chat_is_not_computed_again_after_another_model_had_the_memory(
    tiny_model: Callable[..., Path], tmp_path: Path, words: int, on_disk: bool
) -> None:
    settings = room_for_one_of_two(tiny_model, str(tmp_path) if on_disk else None)
    text = " ".join(f"word{number}" for number in range(words))
    engines = ForgottenEngines(settings, Faults())
    async with open_system(settings, engines=engines) as system:
        for name in ("qwen3", "llama"):
            assert isinstance(await end_of(system, chat(name, "first", "Hello")), Finished)
        start = await unload_all(system, ("qwen3", "llama"))
        first, second = await second_turn(system, text)
        held = engines.held.nbytes()
        left = await unload_all(system, ("qwen3", "llama"))
        assert engines.held.nbytes() == 0
        account = engines.held.account
        assert account is not None
        charges = account.statistics()
        assert (charges.weights, charges.running, charges.cached, charges.held) == (0, 0, 0, 0)
    assert abs(left - start) < 2 * MEGABYTE
    assert (held > 0) is not on_disk
    assert first.usage.prompt >= 4 * words
    assert first.usage.cached == 0
    assert second.usage.prompt - second.usage.cached <= 0.15 * first.usage.prompt


def room_for_one_of_two(tiny_model: Callable[..., Path], prefix_folder: str | None) -> Settings:
    models = tuple(str(tiny_model(kind, max_position_embeddings=8192)) for kind in ("qwen3", "llama"))
    names = [Path(model).name for model in models]
    return Settings(
        models=models,
        model_settings=tuple((name, ModelSettings(alias=(name.partition("-")[0],))) for name in names),
        max_loaded_models=1,
        prefix_cache_dir=prefix_folder,
        prefix_cache_disk_free_bytes=0,
        shutdown_timeout=60.0,
    )


@pytest.mark.deep
async def test_only_an_operators_unload_drops_the_prefixes_of_a_model(
    tiny_model: Callable[..., Path],
) -> None:
    settings = room_for_one_of_two(tiny_model, None)
    engines = ForgottenEngines(settings, Faults())
    text = " ".join(f"word{number}" for number in range(100))
    async with open_system(settings, engines=engines) as system:

        async def is_held() -> bool:
            return engines.held.nbytes() > 0

        async def ask(keep_alive: KeepAlive | None = None) -> int:
            request = attrs.evolve(chat("qwen3", "r", text, max_tokens=2), keep_alive=keep_alive)
            end = await end_of(system, request)
            assert isinstance(end, Finished), end
            return end.usage.cached

        assert await ask(KeepAlive(0.0)) == 0
        await eventually(is_held)
        assert await ask() > 300
        kept = await answer_or_failed(
            system.pool, UnloadModel(ModelKey("qwen3"), keeps_prefixes=True), ModelUnloaded
        )
        assert isinstance(kept, ModelUnloaded)
        held = engines.held.nbytes()
        assert held > 0
        # The model is not in memory any more, but an operator means all of it.
        assert await unload(system, "qwen3") == ModelUnloaded(kept.key, held)
        assert await ask() == 0
        assert isinstance(await unload(system, "qwen3"), ModelUnloaded)
        assert engines.held.nbytes() == 0
        assert await ask() == 0


async def test_held_prefixes_are_released_before_a_model_is_unloaded_or_a_request_refused(
    tiny_model: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = attrs.evolve(room_for_one_of_two(tiny_model, None), max_loaded_models=None)
    engines = ForgottenEngines(settings, Faults())
    text = " ".join(f"word{number}" for number in range(100))
    monkeypatch.setattr(engines, "available_memory", lambda: 0 if engines.held.nbytes() else None)
    with structlog.testing.capture_logs() as logs:
        async with open_system(settings, engines=engines) as system:
            request = attrs.evolve(chat("qwen3", "r", text, max_tokens=2), keep_alive=KeepAlive(0.0))
            assert isinstance(await end_of(system, request), Finished)

            async def is_held() -> bool:
                idle = await state(system.pool, Path(settings.models[0]).name) is ModelState.IDLE
                return idle and engines.held.nbytes() > 0

            await eventually(is_held)
            assert isinstance(await end_of(system, chat("llama", "other", "Hello")), Finished)
            assert engines.held.nbytes() == 0
    decisions = replay(events_in(logs), PoolState())
    assert [decided.plan.held_for for decided in decisions if decided.plan.held_for] != []
    assert not any(decided.plan.unload for decided in decisions)
