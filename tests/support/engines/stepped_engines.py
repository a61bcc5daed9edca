"""Engines without actors: their steps, and the events of each request."""

from __future__ import annotations

from typing import Any

from greenroom.actors.engine_protocol import Engine
from greenroom.schemas.events import InferenceEvent


class SteppedEngine:
    """Has an engine compute, and keeps its events by the ids of their requests."""

    engine: Engine[Any]
    events: dict[str, list[InferenceEvent]]

    def step(self) -> None:
        """Compute one step."""
        for request_id, event in self.engine.step():
            self.events[request_id].append(event)

    def run(self) -> None:
        """Compute until nothing is left to do."""
        while self.engine.has_work:
            self.step()
