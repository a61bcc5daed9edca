"""Requests that wait for a model: their status, their limit of waiting, and their priority."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest
import trio

from greenroom.actors.core.ref import Ref
from greenroom.actors.core.reply import ReplyStream
from greenroom.actors.pool.lease_queue import Granted
from greenroom.actors.pool.model_record import MAX_RETRY
from greenroom.actors.requests.generation import Generation
from greenroom.actors.system import open_system
from greenroom.schemas.events.events import Failed, Finished, QueueStatus, TextDelta
from greenroom.schemas.messages.requests import BACKGROUND, PROBE
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.problems import Problem
from greenroom.schemas.protocols.pool_protocol import Acquire, PoolMessage
from greenroom.schemas.settings.settings import Settings
from greenroom.testing import Faults, FaultyEngines
from greenroom.tests.support.actors.actor_systems import (
    answer,
    chat,
    eventually,
    generate,
    status,
    until,
)
from greenroom.tests.support.models.load_sizes import needs


async def status_of(generation: Generation, status: str) -> QueueStatus:
    """Return the next queue status with this word."""
    while True:
        event = await generation.receive()
        assert not isinstance(event, Failed | Finished), event
        if isinstance(event, QueueStatus) and event.status == status:
            return event


async def problem_of(generation: Generation) -> Problem:
    async for event in generation:
        if isinstance(event, Failed):
            return event.problem
    raise AssertionError("the request did not fail")


async def test_a_request_is_told_which_model_leaves_for_its_own_and_how_many_bytes_that_needs(
    models: tuple[str, ...],
) -> None:
    qwen3, llama, _ = map(needs, models)
    room = max(qwen3, llama) * 3 // 2
    settings = Settings(models=models, memory_bytes=room, shutdown_timeout=60.0)
    async with open_system(settings) as system:
        with (
            generate(system.pool, "qwen3", "holder", max_tokens=20_000) as holder,
            generate(system.pool, "llama", "waiter") as waiter,
            Generation(system.pool, attrs.evolve(chat("llama", "guest"), allowed=("llama",))) as guest,
        ):
            await until(holder, TextDelta)
            told = await status_of(waiter, "waiting_for_model")
            while not told.unloading:
                told = await status_of(waiter, "waiting_for_model")
            assert (told.position, told.model, told.unloading) == (0, "llama", ("qwen3",))
            assert (told.required_bytes, told.available_bytes) == (llama, room - qwen3)
            # Who may not use the other model learns neither its name nor its size.
            hidden = await status_of(guest, "waiting_for_model")
            assert (hidden.loading, hidden.unloading, hidden.available_bytes) == ((), (), None)
            holder.close()
            assert isinstance((await until(waiter, Finished))[-1], Finished)


async def test_a_wait_beyond_queue_timeout_fails_with_the_time_of_a_retry(models: tuple[str, ...]) -> None:
    settings = Settings(models=models, max_batch=1, queue_timeout=0.2, shutdown_timeout=60.0)
    faults = Faults(slow={"first": 0.02})
    async with open_system(settings, engines=FaultyEngines(settings, faults)) as system:
        await answer(system.pool, "qwen3", "first")
        with generate(system.pool, "qwen3", "holder", max_tokens=20_000) as holder:
            await until(holder, TextDelta)
            with (
                Generation(system.pool, chat("qwen3", "late"), limited=True) as late,
                generate(system.pool, "qwen3", "streamed") as patient,
            ):
                problem = await problem_of(late)
                assert (problem.status, problem.code) == (503, "queue_timeout")
                assert problem.retry_after == MAX_RETRY  # the holder wants 2,500 times as much
                holder.close()
                assert isinstance((await until(patient, Finished))[-1], Finished)


async def test_a_load_does_not_count_for_queue_timeout(models: tuple[str, ...]) -> None:
    settings = Settings(models=models, queue_timeout=0.001, shutdown_timeout=60.0)
    faults = Faults(gate=threading.Event())
    assert faults.gate is not None
    async with open_system(settings, engines=FaultyEngines(settings, faults)) as system:
        with (
            Generation(system.pool, chat("qwen3"), limited=True) as first,
            generate(system.pool, "qwen3", "gone") as gone,
            generate(system.pool, "qwen3", "last") as last,
        ):
            await status_of(first, "loading")
            await status_of(gone, "loading")
            await status_at(last, 2)
            gone.close()
            await status_at(last, 1)  # which the tick tells that also counts the waiting time
            faults.gate.set()
            assert isinstance((await until(first, Finished))[-1], Finished)


async def test_requests_of_low_priority_stand_behind_newer_ones(models: tuple[str, ...]) -> None:
    async with open_system(Settings(models=models, max_batch=1, shutdown_timeout=60.0)) as system:
        low, lower = (
            Generation(system.pool, attrs.evolve(chat("qwen3", f"p{step}"), priority=step))
            for step in (BACKGROUND, PROBE)
        )
        with (
            generate(system.pool, "qwen3", "holder", max_tokens=20_000) as holder,
            lower,
            low,
            generate(system.pool, "qwen3", "new") as new,
        ):
            await until(holder, TextDelta)
            for generation in (lower, low, new):
                await status_at(generation, 0)
            await status_at(lower, 2)
            await status_at(low, 1)
            ended = []

            async def finish(generation: Generation) -> None:
                await until(generation, Finished)
                ended.append(generation.request.id)

            async with trio.open_nursery() as nursery:
                for generation in (lower, low, new):
                    nursery.start_soon(finish, generation)
                holder.close()
            assert ended == ["new", "p1", "p10"]


async def test_requests_of_low_priority_take_no_place_in_the_queue_from_others(
    models: tuple[str, ...],
) -> None:
    settings = Settings(models=models, max_batch=1, max_queue=1, shutdown_timeout=60.0)
    async with open_system(settings) as system, Waiters(system.pool, ModelKey("qwen3")) as waiters:
        assert await waiters.ask(0) == "granted"
        assert [await waiters.ask(priority) for priority in (1, 1, 0, 0, 1)] == [
            "waits", "queue_full", "waits", "queue_full", "queue_full",
        ]  # fmt: skip


async def test_neither_do_they_inside_an_engine_that_admits_all(
    tiny_encoder: Callable[[str], Path],
) -> None:
    settings = Settings(models=(str(tiny_encoder("bert")),), max_batch=1, max_queue=1, shutdown_timeout=60.0)
    async with open_system(settings) as system, Waiters(system.pool, ModelKey("bert")) as waiters:
        assert [await waiters.ask(priority) for priority in (1, 1, 1, 0, 0, 0)] == [
            "granted", "granted", "queue_full", "waits", "waits", "queue_full",
        ]  # fmt: skip


class Waiters:
    """Requests for slots of a model, which they keep once granted."""

    def __init__(self, pool: Ref[PoolMessage], key: ModelKey) -> None:
        self._pool = pool
        self._key = key
        self._streams: list[ReplyStream[object]] = []

    async def __aenter__(self) -> Waiters:
        return self

    async def __aexit__(self, *_: object) -> None:
        for stream in self._streams:
            stream.close()

    async def ask(self, priority: int) -> str:
        """Ask for a slot, and return what comes of it."""
        replies: ReplyStream[object] = ReplyStream()
        self._streams.append(replies)
        await self._pool.stream(Acquire(self._key, priority=priority), replies)
        while True:
            match await replies.receive():
                case Granted(lease):
                    replies.sender.watch(lease.close)
                    return "granted"
                case QueueStatus("queued"):
                    return "waits"
                case Failed(problem):
                    return problem.code


async def status_at(generation: Generation, position: int) -> None:
    """Receive events until the request has this place in the queue."""
    while True:
        event = await generation.receive()
        assert not isinstance(event, Failed | Finished), event
        if isinstance(event, QueueStatus) and event.position == position:
            return


@pytest.mark.parametrize(
    ("requests", "n", "refused"),
    [pytest.param(2, 4, False, marks=pytest.mark.deep), (12, 4, False), (24, 1, True)],
)
async def test_what_one_client_takes_and_what_others_still_get(
    models: tuple[str, ...], requests: int, n: int, refused: bool
) -> None:
    settings = Settings(models=models, max_batch=8, max_queue=16, shutdown_timeout=60.0)
    ended: list[Finished | Failed] = []

    def of(client: str, number: int, tokens: int, n: int) -> Generation:
        asked = chat("qwen3", f"{client}-{number}", max_tokens=tokens, n=n, seed=number, ignore_eos=True)
        return Generation(system.pool, attrs.evolve(asked, client=client))

    async def read(generation: Generation) -> None:
        with generation:
            async for event in generation:
                if isinstance(event, Finished | Failed):
                    ended.append(event)

    async def is_full() -> bool:
        described = await status(system.pool, "qwen3")
        snapshot = described.snapshot
        waits = described.queue == max(0, requests - 8 // n)
        return snapshot is not None and snapshot.running == 8 and waits

    async with open_system(settings) as system:
        await answer(system.pool, "qwen3")
        async with trio.open_nursery() as nursery:
            for number in range(requests):
                nursery.start_soon(read, of("many", number, 20_000, n))
            await eventually(is_full)
            if refused:
                assert (await problem_of(of("many", requests, 1, 1))).code == "queue_full"
            for number, client in enumerate(("key_guest", "key_admin", "192.0.2.1")):
                with of(client, number, 3, 1) as other:
                    await until(other, Finished)
                assert not ended
                await eventually(is_full)  # what was lent is used again
            nursery.cancel_scope.cancel()
