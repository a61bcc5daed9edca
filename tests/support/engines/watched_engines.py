"""Engines that tests look into, and stop where they like."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import trio

from greenroom.actors.engine_protocol import Engine
from greenroom.actors.engines import Engines, OpenedModel
from greenroom.schemas.events import InferenceEvent, ReasoningDelta, TextDelta
from greenroom.tests.support.actors.actor_systems import Faults, FaultyEngine


class WatchedEngine(FaultyEngine):
    """A real engine that keeps what its steps say, and stands still behind one when it is told to."""

    def __init__(self, engine: Engine[Any]) -> None:
        super().__init__(engine, Faults())
        self.steps: list[list[InferenceEvent]] = []
        self.go_on = threading.Event()
        self.go_on.set()
        self.stands = threading.Event()

    def step(self) -> list[tuple[str, InferenceEvent]]:
        events = super().step()
        self.steps.append([event for _, event in events])
        if not self.go_on.is_set():
            self.stands.set()
            self.go_on.wait()
            self.stands.clear()
        return events


class WatchedEngines(Engines):
    """Engines of which the last one loaded is watched."""

    engine: WatchedEngine | None = None

    def load_engine(self, opened: OpenedModel, *arguments: Any) -> Engine[Any]:
        self.engine = WatchedEngine(super().load_engine(opened, *arguments))
        return self.engine


def writes(steps: list[list[InferenceEvent]]) -> bool:
    """Return whether the answer has begun."""
    return any(isinstance(event, TextDelta | ReasoningDelta) for step in steps for event in step)


async def until(happened: Callable[[], bool]) -> None:
    """Wait for what another thread does."""
    with trio.fail_after(300):
        while not happened():  # noqa: ASYNC110
            await trio.sleep(0.001)
