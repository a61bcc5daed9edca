"""Engines whose steps tests can inspect and pause."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import trio

from greenroom.actors.engines.engine_protocol import Engine
from greenroom.actors.engines.engines import Engines, OpenedModel
from greenroom.schemas.events.events import InferenceEvent, ReasoningDelta, TextDelta
from greenroom.schemas.events.result_events import AudioChunk, Segment
from greenroom.schemas.settings.settings import Settings
from greenroom.testing import Faults, FaultyEngine, FaultyEngines

Stops = bool | Callable[[InferenceEvent], bool]


class WatchedEngine(FaultyEngine):
    """A real engine that records the events of its steps, and pauses between steps while `go_on` is clear.

    Args:
        stops: Whether it stops by itself in the step behind the first that wrote something; or a function
            that is true of the event behind whose step it does.
    """

    def __init__(self, engine: Engine[Any], *, stops: Stops = False) -> None:
        super().__init__(engine, Faults())
        self._stops = is_written if stops is True else stops
        self.steps: list[list[InferenceEvent]] = []
        self.go_on = threading.Event()
        self.go_on.set()
        self.stands = threading.Event()

    def step(self) -> list[tuple[str, InferenceEvent]]:
        events = super().step()
        self.steps.append([event for _, event in events])
        if self._stops and any(map(self._stops, self.steps[-1])):
            self._stops = False
            self.go_on.clear()  # before anybody is told of this step, behind which the next one stands
        elif not self.go_on.is_set():
            self.stands.set()
            self.go_on.wait()
            self.stands.clear()
        return events


class WatchedEngines(Engines):
    """Engines that watch the last loaded one."""

    engine: WatchedEngine | None = None

    def __init__(self, settings: Settings, *, stops: Stops = False) -> None:
        super().__init__(settings)
        self._stops = stops

    def load_engine(self, opened: OpenedModel, *arguments: Any) -> Engine[Any]:
        self.engine = WatchedEngine(super().load_engine(opened, *arguments), stops=self._stops)
        return self.engine

    @property
    def stand(self) -> bool:
        """True while the last loaded engine pauses."""
        return self.engine is not None and self.engine.stands.is_set()

    async def standing(self) -> WatchedEngine:
        """Return the last loaded engine once it pauses."""
        await until(lambda: self.stand)
        assert self.engine is not None
        return self.engine


class PatientEngines(FaultyEngines):
    """Faulty engines that go on with long requests, once one has a result, only while others run beside them.

    So no long request is over before a test has come to its next line, however fast the model is.

    Args:
        long: Ids of long requests.
    """

    def __init__(self, settings: Settings, faults: Faults, *long: str) -> None:
        super().__init__(settings, faults)
        self._long = {*long}

    def load_engine(self, *arguments: Any) -> Engine[Any]:
        engine = super().load_engine(*arguments)
        assert isinstance(engine, FaultyEngine)
        step, pause = engine.step, threading.Event()

        def step_if_wanted() -> list[tuple[str, InferenceEvent]]:
            running = engine._names.keys()
            if running <= self._long and any(engine._seen.get(name) for name in running):
                pause.wait(0.001)
                return []
            return step()

        engine.step = step_if_wanted  # type: ignore[method-assign]
        return engine


_WRITTEN = TextDelta | ReasoningDelta | AudioChunk | Segment


def is_written(event: InferenceEvent) -> bool:
    """Return whether an event is a part of an answer."""
    return isinstance(event, _WRITTEN)


def writes(steps: list[list[InferenceEvent]]) -> bool:
    """Return whether the answer has begun."""
    return any(is_written(event) for step in steps for event in step)


async def until(happened: Callable[[], bool]) -> None:
    """Poll a condition that another thread makes true."""
    with trio.fail_after(300):
        while not happened():  # noqa: ASYNC110
            await trio.sleep(0.001)
