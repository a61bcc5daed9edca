"""Engines without actors, stepped by the test."""

from __future__ import annotations

from typing import Any

from greenroom.actors.engines.engine_protocol import Engine
from greenroom.schemas.events.events import InferenceEvent


class SteppedEngine:
    """Steps an engine, and collects its events by request id."""

    engine: Engine[Any]
    events: dict[str, list[InferenceEvent]]

    def step(self) -> None:
        """Run one step."""
        for request_id, event in self.engine.step():
            self.events[request_id].append(event)

    def run(self) -> None:
        """Step until the engine has no work."""
        while self.engine.has_work:
            self.step()
