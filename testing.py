"""A test kit for programs that use Greenroom: models that answer from a list, and fail by name.

Actors, pool, adapters, parsers and protocols are the real ones; only the engine is scripted, so that answers
are known and come at once. `pytest_plugins = ["greenroom.testing"]` gives tests the fixtures; pytest and
pytest-trio must be installed. notes/embed.md shows a test.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import attrs
import pytest

from greenroom.actors.engines.engine_protocol import (
    Engine,
    PromptAdapter,
    RenderingAdapter,
    SuspendableEngine,
)
from greenroom.actors.engines.engines import Engines, ModelFiles, OpenedModel
from greenroom.actors.engines.listed_models import ModelNames
from greenroom.actors.system import System, open_system
from greenroom.engine.adapters.adapter import Adapter
from greenroom.engine.catalog.folders import DEMO_FOLDER, CatalogEntry
from greenroom.engine.parsers.stream_processor import StreamProcessor
from greenroom.engine.resources.residence import CachelessEngine
from greenroom.schemas.events.events import Finished, InferenceEvent, TextDelta, Usage
from greenroom.schemas.events.result_events import Vector
from greenroom.schemas.events.statistics import EngineSnapshot, MemoryStatistics
from greenroom.schemas.messages.messages import TextPart
from greenroom.schemas.messages.prepared_input import PreparedInput, PreparedPrompt
from greenroom.schemas.messages.requests import ChatInput, InferenceRequest, RawInput
from greenroom.schemas.problems import Problem
from greenroom.schemas.protocols.model_protocol import PromptContents
from greenroom.schemas.settings.settings import Settings

PIECE = 3
"""Characters that a scripted model writes in a step."""

Script = Sequence[str] | Callable[[Adapter], str]
"""Answers in the order of the requests, the last of which repeats; or a function of the model's adapter, for
answers in its own format of calls."""


@attrs.define
class Faults:
    """Faults and delays to inject into a system, which may be changed while it runs.

    A request is meant by its id, by its prompt, or by the text of one of its messages.

    Args:
        crash_prompt: Requests whose preparation raises.
        crash: Requests at whose second event the step raises, which ends the model's other requests too.
        error: Message of that error.
        out_of_memory: Requests at whose second event the step raises what MLX does without memory.
        slow: Seconds that each step takes longer while a request runs.
        hang: Requests at whose second event the step blocks until `release` is set; at the first one after
            the request is added here, if later. The step of a garbled request returns, and the worker
            blocks behind it.
        hang_prompt: Requests whose preparation blocks until `release` is set.
        gate: Event that loads wait for; None to load at once.
        load: Errors raised instead of loading, by model id: a `ProblemError`, say.
        release: Event that ends all that hangs.
        hangs: Event set when something hangs.
        loads: Names of the models in the order of their loads.
        engines: All engines loaded so far.
        garble: Requests at whose second event the step returns an invalid value, which crashes the actor.
        panic: Requests at whose second event the step raises a BaseException; likewise `panic_prompt`.
        hang_open: True to block opening model files until `release` is set.
        hang_find: Model names whose lookup blocks until `release` is set.
        panic_find: Model names whose lookup raises a BaseException.
    """

    crash_prompt: set[str] = attrs.field(factory=set)
    crash: set[str] = attrs.field(factory=set)
    error: str = "planted crash"
    out_of_memory: set[str] = attrs.field(factory=set)
    slow: dict[str, float] = attrs.field(factory=dict)
    hang: set[str] = attrs.field(factory=set)
    hang_prompt: set[str] = attrs.field(factory=set)
    gate: threading.Event | None = None
    load: dict[str, BaseException] = attrs.field(factory=dict)
    release: threading.Event = attrs.field(factory=threading.Event)
    hangs: threading.Event = attrs.field(factory=threading.Event)
    loads: list[str] = attrs.field(factory=list)
    engines: list[Engine[Any]] = attrs.field(factory=list)
    garble: set[str] = attrs.field(factory=set)
    panic: set[str] = attrs.field(factory=set)
    panic_prompt: set[str] = attrs.field(factory=set)
    hang_open: bool = False
    hang_find: set[str] = attrs.field(factory=set)
    panic_find: set[str] = attrs.field(factory=set)

    def block(self) -> None:
        """Hang until `release` is set."""
        self.hangs.set()
        self.release.wait()


class Panic(BaseException):
    """A stand-in for the exception of a Rust panic, which is no `Exception` either."""


class _FaultyNames(ModelNames):
    def __init__(self, settings: Settings, faults: Faults) -> None:
        super().__init__(settings)
        self._faults = faults

    def find(self, name: str) -> CatalogEntry | Problem:
        if name in self._faults.hang_find:
            self._faults.block()
        if name in self._faults.panic_find:
            raise Panic("planted")
        return super().find(name)


class FaultyEngines(Engines):
    """Access to real engines that inject faults."""

    def __init__(self, settings: Settings, faults: Faults) -> None:
        super().__init__(settings, names=_FaultyNames(settings, faults))
        self._faults = faults

    def open_model(self, files: ModelFiles) -> OpenedModel:
        if self._faults.hang_open:
            self._faults.block()
        opened = super().open_model(files)
        return attrs.evolve(opened, adapter=FaultyAdapter(opened.adapter, self._faults))

    def load_engine(
        self, opened: OpenedModel, progress: Callable[[float], None], is_abandoned: Callable[[], bool]
    ) -> Engine[Any]:
        """Load a model, once the gate is open."""
        name = Path(opened.folder).name
        self._faults.loads.append(name)
        if self._faults.gate is not None:
            while not self._faults.gate.wait(0.01):
                if is_abandoned():
                    raise RuntimeError("abandoned")
        if name in self._faults.load:
            raise self._faults.load[name]
        assert isinstance(opened.adapter, FaultyAdapter)
        loaded = self._load(attrs.evolve(opened, adapter=opened.adapter.adapter), progress, is_abandoned)
        kind = FaultySuspendableEngine if isinstance(loaded, SuspendableEngine) else FaultyEngine
        engine = kind(loaded, self._faults)
        self._faults.engines.append(engine)
        return engine

    def _load(
        self, opened: OpenedModel, progress: Callable[[float], None], is_abandoned: Callable[[], bool]
    ) -> Engine[Any]:
        return super().load_engine(opened, progress, is_abandoned)


@attrs.frozen
class FaultyAdapter:
    """A real adapter that fails or blocks while it prepares some requests."""

    adapter: PromptAdapter
    faults: Faults

    def prepare_input(self, request: InferenceRequest) -> PreparedInput:
        names = _names_of(request)
        if self.faults.hang_prompt & names:
            self.faults.block()
        if self.faults.panic_prompt & names:
            raise Panic("planted")
        if self.faults.crash_prompt & names:
            raise RuntimeError(self.faults.error)
        return self.adapter.prepare_input(request)

    def render_prompt(self, request: InferenceRequest) -> PromptContents:
        return cast("RenderingAdapter", self.adapter).render_prompt(request)


def _names_of(request: InferenceRequest) -> set[str]:
    """Return the names of a request: its id and its texts."""
    names = {request.id}
    match request.input:
        case ChatInput(messages):
            parts = (part for message in messages for part in message.content)
            names |= {part.text for part in parts if isinstance(part, TextPart)}
        case RawInput(str(prompt)):
            names.add(prompt)
    return names


class FaultyEngine:
    """An engine whose steps fail, block or take long as the test wants."""

    def __init__(self, engine: Engine[Any], faults: Faults) -> None:
        self._engine = engine
        self._faults = faults
        self._names: dict[str, set[str]] = {}
        self._seen: dict[str, int] = {}
        self._garbled: set[str] = set()

    @property
    def has_work(self) -> bool:
        if self._garbled & self._faults.hang:
            self._faults.block()
        return self._engine.has_work

    def snapshot(self) -> EngineSnapshot:
        return self._engine.snapshot()

    def submit(self, request: InferenceRequest, prepared: PreparedInput) -> None:
        self._names[request.id] = _names_of(request)
        self._engine.submit(request, prepared)

    def cancel(self, request_id: str) -> None:
        self._engine.cancel(request_id)

    def step(self) -> list[tuple[str, InferenceEvent]]:
        """Compute one step, with the faults of its requests."""
        delays = (seconds for name, seconds in self._faults.slow.items() if self._runs(name))
        if delay := max(delays, default=0.0):
            self._faults.release.wait(delay)
        events = self._engine.step()
        for request_id, event in events:
            count = self._seen.get(request_id, 0) + isinstance(event, TextDelta | Vector)
            self._seen[request_id] = count
            if count == 2 and self._is(request_id, self._faults.panic):
                raise Panic("planted")
            if count == 2 and self._is(request_id, self._faults.garble):
                self._garbled.add(request_id)
                return [(request_id, Finished("stop", Usage(0, 0), "garbled"))]  # type: ignore[arg-type]
            if count >= 2 and self._is(request_id, self._faults.hang):
                self._faults.block()
            if count >= 2 and self._is(request_id, self._faults.crash):
                raise RuntimeError(self._faults.error)
            if count >= 2 and self._is(request_id, self._faults.out_of_memory):
                raise RuntimeError("[malloc] Unable to allocate 1073741824 bytes.")
            if isinstance(event, Finished):
                self._names.pop(request_id, None)
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

    def _is(self, request_id: str, meant: set[str]) -> bool:
        # A request that was suspended in another engine is known by its id alone.
        return bool(meant & self._names.get(request_id, {request_id}))

    def _runs(self, name: str) -> bool:
        return any(name in names for names in self._names.values())


class FaultySuspendableEngine(FaultyEngine):
    """A faulty engine whose requests can be suspended and resumed in another engine."""

    _engine: SuspendableEngine[Any]

    def suspend(self) -> Mapping[str, Any] | None:
        return self._engine.suspend()

    def unbegun(self) -> Mapping[str, Any]:
        return self._engine.unbegun()

    def resume(self, suspended: Any) -> None:
        self._engine.resume(suspended)


class ScriptedEngines(FaultyEngines):
    """Access to engines of text models that answer by a script, `PIECE` characters a step.

    Args:
        faults: Faults to inject; by default there are none.
    """

    def __init__(self, settings: Settings, script: Script, faults: Faults | None = None) -> None:
        super().__init__(settings, Faults() if faults is None else faults)
        self._script = script
        self._asked = itertools.count()

    def _load(
        self, opened: OpenedModel, progress: Callable[[float], None], is_abandoned: Callable[[], bool]
    ) -> Engine[Any]:
        adapter = cast("Adapter", opened.adapter)
        return ScriptedEngine(adapter, partial(self._answer, adapter))

    def _answer(self, adapter: Adapter) -> str:
        """Return the answer to the next request."""
        if callable(self._script):
            return self._script(adapter)
        return self._script[min(next(self._asked), len(self._script) - 1)]


@attrs.define
class _Choice:
    index: int
    pieces: Iterator[str]
    processor: StreamProcessor
    prepared: PreparedPrompt
    generated: int = 0
    cancelled: bool = False

    def next(self) -> tuple[list[InferenceEvent], bool]:
        """Return the next step's events, and whether they are the last."""
        is_full = self.generated >= self.prepared.max_tokens
        piece = None if self.cancelled or is_full else next(self.pieces, None)
        if piece is not None:
            self.generated += 1
            return list(self.processor.feed(piece)), False
        reason = "cancelled" if self.cancelled else "length" if is_full else "stop"
        last: list[InferenceEvent] = list(self.processor.finish())
        if reason == "stop" and self.processor.has_tool_calls:
            reason = "tool_calls"
        usage = Usage(len(self.prepared.tokens), self.generated, reasoning=self.processor.reasoning_tokens)
        return [*last, Finished(reason, usage)], True  # type: ignore[arg-type]


class ScriptedEngine(CachelessEngine):
    """An engine without weights that writes what it is told; a token is a piece.

    Args:
        answer: Returns the next answer.
    """

    def __init__(self, adapter: Adapter, answer: Callable[[], str]) -> None:
        self._adapter = adapter
        self._answer = answer
        self._choices: dict[str, list[_Choice]] = {}
        self._numbers = itertools.count()

    @property
    def has_work(self) -> bool:
        return bool(self._choices)

    def snapshot(self) -> EngineSnapshot:
        """Return the tokens of the answers that are written."""
        generated = sum(choice.generated for choices in self._choices.values() for choice in choices)
        return EngineSnapshot(
            len(self._choices), 0, Usage(generated=generated), MemoryStatistics(0, 0, 0, 0, None)
        )

    def submit(self, request: InferenceRequest, prepared: PreparedPrompt) -> None:
        """Begin an answer, the same for each choice."""
        text = self._answer()
        self._choices[request.id] = [
            _Choice(
                index,
                iter([text[start : start + PIECE] for start in range(0, len(text), PIECE)]),
                self._adapter.new_stream_processor(prepared, self._new_call_id),
                prepared,
            )
            for index in range(prepared.choices)
        ]

    def cancel(self, request_id: str) -> None:
        for choice in self._choices.get(request_id, ()):
            choice.cancelled = True

    def step(self) -> list[tuple[str, InferenceEvent]]:
        """Write a piece of each answer."""
        events: list[tuple[str, InferenceEvent]] = []
        for name, choices in list(self._choices.items()):
            for choice in list(choices):
                written, is_last = choice.next()
                events += ((name, attrs.evolve(cast("Any", event), index=choice.index)) for event in written)
                if is_last:
                    choices.remove(choice)
            if not choices:
                del self._choices[name]
        return events

    def close(self) -> None:
        self._choices.clear()

    def _new_call_id(self) -> str:
        return f"call_{next(self._numbers)}"


def make_model(folder: Path) -> Path:
    """Create a folder with the built-in demo model's files, for a model of that name, and return it."""
    folder.mkdir(parents=True)
    for file in DEMO_FOLDER.iterdir():
        (folder / file.name).symlink_to(file)
    return folder


OpenScripted = Callable[..., AbstractAsyncContextManager[System]]


@pytest.fixture
def faults() -> Iterator[Faults]:
    """Return the faults of `scripted_system`; what hangs is released after the test."""
    made = Faults()
    yield made
    made.release.set()


@pytest.fixture
def scripted_system(faults: Faults, tmp_path: Path) -> OpenScripted:
    """Return `scripted_system(script, *models, **settings)`, which opens a system of scripted models.

    Without names of models there is one, `default`. `hang_timeout` is that of `open_system`.
    """

    @asynccontextmanager
    async def opened(
        script: Script, *models: str, hang_timeout: float = 120.0, **settings: Any
    ) -> AsyncIterator[System]:
        folders = tuple(str(make_model(tmp_path / "models" / name)) for name in models)
        chosen = Settings(**{"models": folders, "shutdown_timeout": 10.0, **settings})
        engines = ScriptedEngines(chosen, script, faults)
        async with open_system(chosen, engines=engines, hang_timeout=hang_timeout) as system:
            yield system

    return opened
