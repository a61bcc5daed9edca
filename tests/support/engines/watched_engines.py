"""Engines whose steps tests can inspect and pause."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import trio

from greenroom.actors.engines.engine_protocol import Engine
from greenroom.actors.engines.engines import Engines, OpenedModel
from greenroom.schemas.events.events import InferenceEvent, ReasoningDelta, TextDelta
from greenroom.testing import Faults, FaultyEngine


class WatchedEngine(FaultyEngine):
    """A real engine that records the events of its steps, and pauses between steps while `go_on` is clear."""

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
    """Engines that watch the last loaded one."""

    engine: WatchedEngine | None = None

    def load_engine(self, opened: OpenedModel, *arguments: Any) -> Engine[Any]:
        self.engine = WatchedEngine(super().load_engine(opened, *arguments))
        return self.engine


def writes(steps: list[list[InferenceEvent]]) -> bool:
    """Return whether the answer has begun."""
    return any(isinstance(event, TextDelta | ReasoningDelta) for step in steps for event in step)


async def until(happened: Callable[[], bool]) -> None:
    """Poll a condition that another thread makes true."""
    with trio.fail_after(300):
        while not happened():  # noqa: ASYNC110
            await trio.sleep(0.001)
