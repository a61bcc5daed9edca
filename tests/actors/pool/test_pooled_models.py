"""The pool with models that run here beside one that an actor of another kind forwards to another system."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import attrs
import pytest
import trio

from greenroom.actors.core.ref import Ref
from greenroom.actors.core.worker import Workers
from greenroom.actors.engines.engines import Engines
from greenroom.actors.model.model import Model
from greenroom.actors.pool.model_record import PooledModel
from greenroom.actors.pool.pool import Pool
from greenroom.actors.requests.generation import Generation
from greenroom.actors.requests.prompt_queries import count_prompt_tokens
from greenroom.actors.system import open_system
from greenroom.schemas.events.events import Failed, Finished, QueueStatus, TextDelta
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.models.lifecycle import ModelState
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.protocols.model_protocol import ModelReport
from greenroom.schemas.protocols.pool_protocol import PoolMessage
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.actors.actor_systems import answer, chat, generate, state, status, until
from greenroom.tests.support.actors.forwarding_model import Elsewhere, ForwardingModel

FAR = "mistral"
"""The model that is elsewhere."""


@attrs.frozen
class Pools:
    """A pool with room for one local model, and the system elsewhere."""

    here: Ref[PoolMessage]
    other: Elsewhere


@asynccontextmanager
async def open_pools(models: tuple[str, ...], slots: int = 4) -> AsyncIterator[Pools]:
    async with open_system(Settings(models=models, shutdown_timeout=60.0)) as far:
        settings = Settings(models=models, max_loaded_models=1, max_queue=1, shutdown_timeout=60.0)
        workers, engines, other = Workers(), Engines(settings), Elsewhere(far.pool, slots)

        def make(key: ModelKey, state: ModelState, report: Callable[[ModelReport], None]) -> PooledModel:
            if key.model == FAR:
                return ForwardingModel(key, state, report, other)
            return Model(key, engines, workers, report, state=state, slots=settings.max_batch)

        pool = Pool(settings, workers, engines, make)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pool.run)
            yield Pools(pool.ref, other)
            nursery.cancel_scope.cancel("the test is over")
        assert await workers.close(60.0)


async def test_a_model_elsewhere_answers_beside_local_ones_and_takes_none_of_their_room(
    models: tuple[str, ...],
) -> None:
    async with open_pools(models) as pools:
        expected, _ = await answer(pools.other.pool, FAR)
        with generate(pools.here, "qwen3", "long", max_tokens=20_000) as running:
            await until(running, TextDelta)
            text, end = await answer(pools.here, FAR)
            assert (text, type(end)) == (expected, Finished)
            assert (await status(pools.here, "qwen3")).running == 1
        # A second local model takes the place of the first, and the one elsewhere stays.
        assert isinstance((await answer(pools.here, "llama"))[1], Finished)
        states = {name: await state(pools.here, name) for name in ("qwen3", "llama", FAR)}
        assert states == {
            "qwen3": ModelState.IDLE,
            "llama": ModelState.READY,
            FAR: ModelState.READY,
        }
        assert pools.other.commands == ["Load"]


async def test_its_slots_are_its_own_and_its_queue_has_a_limit(models: tuple[str, ...]) -> None:
    async with open_pools(models, slots=1) as pools:
        with (
            generate(pools.here, FAR, "running", max_tokens=20_000) as running,
            generate(pools.here, FAR, "waiting", n=3) as waiting,
        ):
            await until(running, TextDelta)
            assert await waiting.receive() == QueueStatus("queued", 0, FAR)
            described = await status(pools.here, FAR)
            assert (described.running, described.slots, described.waiting) == (1, 1, 1)
            _, refused = await answer(pools.here, FAR, "one too many")
            assert isinstance(refused, Failed)
            assert refused.problem.code == "queue_full"
            running.close()
            assert isinstance((await until(waiting, Finished))[-1], Finished)


async def test_a_crash_fails_its_requests_and_the_next_one_starts_it_again(models: tuple[str, ...]) -> None:
    async with open_pools(models) as pools:
        pools.other.crash.add("crashing")
        _, failed = await answer(pools.here, FAR, "crashing")
        assert isinstance(failed, Failed)
        assert (failed.problem.status, failed.problem.code) == (500, "model_crashed")
        assert isinstance((await answer(pools.here, FAR))[1], Finished)
        assert pools.other.commands.count("Load") == 2


@pytest.mark.parametrize("name", ["qwen3", FAR])
async def test_an_unknown_adapter_is_a_404_that_names_it_and_loads_nothing(
    models: tuple[str, ...], name: str
) -> None:
    async with open_pools(models) as pools:
        asked = attrs.evolve(chat(name), adapter="lora")
        with Generation(pools.here, asked) as generation:
            failed = await generation.receive()
        assert isinstance(failed, Failed)
        assert (failed.problem.status, failed.problem.code) == (404, "adapter_not_found")
        assert failed.problem.param == "adapter"
        assert f"'{name}' has no adapter 'lora'" in failed.problem.detail
        with pytest.raises(ProblemError) as refused:
            await count_prompt_tokens(pools.here, asked)
        assert refused.value.problem == failed.problem
        assert await state(pools.here, name) is ModelState.IDLE
