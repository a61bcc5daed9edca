"""Requests for actors under test, and a system whose engines fail on purpose."""

from __future__ import annotations

import gc
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from greenroom.actors.core.heartbeat import SILENT_TICKS
from greenroom.actors.core.ref import Ref
from greenroom.actors.engines.engine_protocol import Engine, PromptAdapter, SuspendableEngine
from greenroom.actors.engines.engines import Engines, ModelFiles, OpenedModel
from greenroom.actors.requests.generation import Generation
from greenroom.actors.system import System
from greenroom.engine.catalog.entries import CatalogEntry
from greenroom.schemas.events.events import Failed, Finished, InferenceEvent, TextDelta, Usage
from greenroom.schemas.events.result_events import Vector
from greenroom.schemas.events.statistics import EngineSnapshot
from greenroom.schemas.messages.messages import Message, TextPart
from greenroom.schemas.messages.prepared_input import PreparedInput
from greenroom.schemas.messages.requests import ChatInput, InferenceRequest
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.models.lifecycle import ModelState
from greenroom.schemas.problems import Problem
from greenroom.schemas.protocols.pool_protocol import DescribePool, ModelStatus, PoolMessage, PoolStatus
from greenroom.schemas.settings.settings import Settings


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


@attrs.define
class Faults:
    """Faults to inject.

    Args:
        crash: Ids of requests at whose second event the step raises.
        error: Message of that error.
        garble: Ids of requests at whose second event the step returns an invalid value.
        hang: Ids of requests at whose second event the step blocks until `release` is set; at the first one
            after the id is added here, if later. The step of a garbled request returns, and the worker
            blocks behind it.
        panic: Ids of requests at whose second event the step raises a BaseException.
        hang_prompt: Ids of requests, or parts of their text, whose preparation blocks until `release` is set.
        panic_prompt: Ids of requests whose preparation raises a BaseException.
        hang_open: True to block opening model files until `release` is set.
        hang_find: Model names whose lookup blocks until `release` is set.
        panic_find: Model names whose lookup raises a BaseException.
        load: Errors raised instead of loading, by model id.
        hangs: Event set when a step blocks.
        gate: Event that loads wait for.
        engines: All engines loaded so far.
    """

    crash: set[str] = attrs.field(factory=set)
    error: str = "planted crash"
    garble: set[str] = attrs.field(factory=set)
    hang: set[str] = attrs.field(factory=set)
    panic: set[str] = attrs.field(factory=set)
    hang_prompt: set[str] = attrs.field(factory=set)
    panic_prompt: set[str] = attrs.field(factory=set)
    hang_open: bool = False
    hang_find: set[str] = attrs.field(factory=set)
    panic_find: set[str] = attrs.field(factory=set)
    load: dict[str, BaseException] = attrs.field(factory=dict)
    release: threading.Event = attrs.field(factory=threading.Event)
    hangs: threading.Event = attrs.field(factory=threading.Event)
    gate: threading.Event | None = None
    loads: list[str] = attrs.field(factory=list)
    engines: list[Engine[Any]] = attrs.field(factory=list)


class Panic(BaseException):
    """A stand-in for the exception of a Rust panic, which is no `Exception` either."""


class FaultyEngines(Engines):
    """Real engines, wrapped to inject faults."""

    def __init__(self, settings: Settings, faults: Faults) -> None:
        super().__init__(settings)
        self._faults = faults

    def find(self, name: str) -> CatalogEntry | Problem:
        if name in self._faults.hang_find:
            self._faults.hangs.set()
            self._faults.release.wait()
        if name in self._faults.panic_find:
            raise Panic("planted")
        return super().find(name)

    def open_model(self, files: ModelFiles) -> OpenedModel:
        if self._faults.hang_open:
            self._faults.hangs.set()
            self._faults.release.wait()
        opened = super().open_model(files)
        return attrs.evolve(opened, adapter=FaultyAdapter(opened.adapter, self._faults))

    def load_engine(
        self, opened: OpenedModel, progress: Callable[[float], None], is_abandoned: Callable[[], bool]
    ) -> Engine[Any]:
        name = Path(opened.folder).name
        self._faults.loads.append(name)
        if self._faults.gate is not None:
            while not self._faults.gate.wait(0.01):
                if is_abandoned():
                    raise RuntimeError("abandoned")
        if name in self._faults.load:
            raise self._faults.load[name]
        assert isinstance(opened.adapter, FaultyAdapter)
        loaded = super().load_engine(
            attrs.evolve(opened, adapter=opened.adapter.adapter), progress, is_abandoned
        )
        kind = FaultySuspendableEngine if isinstance(loaded, SuspendableEngine) else FaultyEngine
        engine = kind(loaded, self._faults)
        self._faults.engines.append(engine)
        return engine


@attrs.frozen
class FaultyAdapter:
    """A real adapter that blocks or panics while it prepares some requests."""

    adapter: PromptAdapter
    faults: Faults

    def prepare_input(self, request: InferenceRequest) -> PreparedInput:
        conversation = request.input.messages if isinstance(request.input, ChatInput) else ()
        texts = {
            part.text for message in conversation for part in message.content if isinstance(part, TextPart)
        }
        if self.faults.hang_prompt & {request.id, *texts}:
            self.faults.hangs.set()
            self.faults.release.wait()
        if request.id in self.faults.panic_prompt:
            raise Panic("planted")
        return self.adapter.prepare_input(request)


class FaultyEngine:
    """A real engine whose step raises or blocks as the test wants."""

    def __init__(self, engine: Engine[Any], faults: Faults) -> None:
        self._engine = engine
        self._faults = faults
        self._seen: dict[str, int] = {}
        self._garbled: set[str] = set()

    @property
    def has_work(self) -> bool:
        if self._garbled & self._faults.hang:
            self._faults.hangs.set()
            self._faults.release.wait()
        return self._engine.has_work

    def snapshot(self) -> EngineSnapshot:
        return self._engine.snapshot()

    def submit(self, request: InferenceRequest, prepared: PreparedInput) -> None:
        self._engine.submit(request, prepared)

    def cancel(self, request_id: str) -> None:
        self._engine.cancel(request_id)

    def step(self) -> list[tuple[str, InferenceEvent]]:
        events = self._engine.step()
        for request_id, event in events:
            self._seen[request_id] = self._seen.get(request_id, 0) + isinstance(event, TextDelta | Vector)
            if self._seen[request_id] == 2 and request_id in self._faults.panic:
                raise Panic("planted")
            if self._seen[request_id] == 2 and request_id in self._faults.garble:
                self._garbled.add(request_id)
                return [(request_id, Finished("stop", Usage(0, 0), "garbled"))]  # type: ignore[arg-type]
            if self._seen[request_id] >= 2 and request_id in self._faults.hang:
                self._faults.hangs.set()
                self._faults.release.wait()
            if self._seen[request_id] >= 2 and request_id in self._faults.crash:
                raise RuntimeError(self._faults.error)
        return events

    @property
    def idle_delay(self) -> float | None:
        return self._engine.idle_delay

    def work_idly(self) -> None:
        self._engine.work_idly()

    def on_memory_wanted(self, call: Callable[[], None]) -> None:
        self._engine.on_memory_wanted(call)

    def release_memory(self) -> None:
        self._engine.release_memory()

    def release_caches(self) -> None:
        self._engine.release_caches()

    def close(self) -> None:
        self._engine.close()


class FaultySuspendableEngine(FaultyEngine):
    """A faulty engine whose requests can be suspended and resumed in another engine."""

    _engine: SuspendableEngine[Any]

    def suspend(self) -> Mapping[str, Any] | None:
        return self._engine.suspend()

    def unbegun(self) -> Mapping[str, Any]:
        return self._engine.unbegun()

    def resume(self, suspended: Any) -> None:
        self._engine.resume(suspended)
