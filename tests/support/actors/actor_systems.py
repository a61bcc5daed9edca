"""Requests for actors under test, and questions about their system."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from greenroom.actors.core.ref import Ref
from greenroom.actors.core.worker_thread import SILENT_TICKS
from greenroom.actors.requests.generation import Generation
from greenroom.actors.system import System
from greenroom.schemas.events.events import Failed, Finished, InferenceEvent, TextDelta
from greenroom.schemas.messages.messages import Message, TextPart
from greenroom.schemas.messages.requests import ChatInput, InferenceRequest
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.models.lifecycle import ModelState
from greenroom.schemas.protocols.pool_protocol import DescribePool, ModelStatus, PoolMessage, PoolStatus
from greenroom.testing import Faults


def chat(
    model: str, request_id: str = "r", prompt: str = "Hello there", **overrides: Any
) -> InferenceRequest:
    """Return a greedy request."""
    conversation = ChatInput((Message("user", (TextPart(prompt),)),))
    parameters = {"temperature": 0.0, "max_tokens": 8, **overrides}
    return InferenceRequest(request_id, ModelKey(model), conversation, parameters)


def generate(pool: Ref[PoolMessage], model: str, request_id: str = "r", **overrides: Any) -> Generation:
    """Return the generation of a greedy request."""
    return Generation(pool, chat(model, request_id, **overrides))


async def until(generation: Generation, kind: type[InferenceEvent]) -> list[InferenceEvent]:
    """Return the events up to the first of a type; fail if it never comes."""
    events: list[InferenceEvent] = []
    async for event in generation:
        events.append(event)
        if isinstance(event, kind):
            return events
        assert not isinstance(event, Failed), event
    raise AssertionError(f"no {kind.__name__} in {events}")


async def answer(
    pool: Ref[PoolMessage], model: str, request_id: str = "r", **overrides: Any
) -> tuple[str, Finished | Failed]:
    """Return the whole text and the last event of a greedy request."""
    text, end = "", None
    with generate(pool, model, request_id, **overrides) as generation:
        async for event in generation:
            if isinstance(event, TextDelta):
                text += event.text
            elif isinstance(event, (Finished, Failed)):
                end = event
    assert end is not None
    return text, end


async def status(pool: Ref[PoolMessage], model: str) -> ModelStatus:
    """Return the pool's status of one model; idle for a model never requested."""
    described = await pool.ask(DescribePool(), PoolStatus)
    assert isinstance(described, PoolStatus)
    unknown = ModelStatus(ModelKey(model), ModelState.IDLE)
    return next((entry for entry in described.models if entry.key.model == model), unknown)


async def state(pool: Ref[PoolMessage], model: str) -> ModelState:
    """Return the state of one model."""
    return (await status(pool, model)).state


async def generating(pool: Ref[PoolMessage], model: str, requests: int) -> None:
    """Wait until a model generates for `requests` requests."""

    async def does() -> bool:
        return (await status(pool, model)).running == requests

    await eventually(does)


async def eventually(happened: Callable[[], Awaitable[bool]], seconds: float = 600.0) -> None:
    """Poll a condition until it is true."""
    with trio.fail_after(seconds):
        while not await happened():  # noqa: ASYNC110
            await trio.sleep(0.01)


def count_objects(*kinds: type) -> Counter[type]:
    """Count this process's live objects by type. Objects that live while a library is first imported are
    never collected, so counts include those of earlier tests.
    """
    gc.collect()
    return Counter(type(thing) for thing in gc.get_objects() if type(thing) in kinds)


HANG_TIMEOUT = 1e6
"""Hang timeout in seconds of a clock that jumps. It is far longer than any real job."""
HANG_WAIT = 120.0
"""Longest wait for a thread to hang, in seconds."""


async def fall_silent(clock: MockClock, faults: Faults, system: System) -> None:
    """Wait for a thread to hang and all others to pause, then jump the clock until it counts as silent.

    Args:
        clock: The clock of the system, whose `hang_timeout` is `HANG_TIMEOUT`.
    """
    assert await trio.to_thread.run_sync(faults.hangs.wait, HANG_WAIT), "nothing hangs"
    faults.hangs.clear()

    async def only_one_works() -> bool:
        return system.statistics().working == 1

    await eventually(only_one_works)
    for _ in range(SILENT_TICKS + 2):
        clock.jump(HANG_TIMEOUT / SILENT_TICKS)
        await wait_all_tasks_blocked()
