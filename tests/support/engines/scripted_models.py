"""Models that generate a given text, parsed by the real adapter of a real tiny model."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, cast

import attrs

from greenroom.actors.engines.engine_protocol import Engine
from greenroom.actors.engines.engines import Engines, OpenedModel
from greenroom.engine.adapters.adapter import Adapter
from greenroom.engine.parsers.stream_processor import StreamProcessor
from greenroom.schemas.events.events import Finished, InferenceEvent, Usage
from greenroom.schemas.events.statistics import EngineSnapshot, MemoryStatistics
from greenroom.schemas.messages.prepared_input import PreparedPrompt
from greenroom.schemas.messages.requests import InferenceRequest
from greenroom.schemas.settings.settings import Settings

PIECE = 3


class ScriptedEngines(Engines):
    """Engines that all generate `script(adapter)`, three characters a step."""

    def __init__(self, settings: Settings, script: Callable[[Adapter], str]) -> None:
        super().__init__(settings)
        self._script = script

    def load_engine(
        self, opened: OpenedModel, progress: Callable[[float], None], is_abandoned: Callable[[], bool]
    ) -> Engine[Any]:
        adapter = cast("Adapter", opened.adapter)
        return ScriptedEngine(adapter, self._script(adapter))


@attrs.define
class _Answer:
    pieces: Iterator[str]
    processor: StreamProcessor
    prompt: int
    generated: int = 0
    cancelled: bool = False

    def finished(self) -> Finished:
        usage = Usage(self.prompt, self.generated, reasoning=self.processor.reasoning_tokens)
        if self.cancelled:
            return Finished("cancelled", usage)
        return Finished("tool_calls" if self.processor.has_tool_calls else "stop", usage)


class ScriptedEngine:
    """An engine without weights that generates a script."""

    def __init__(self, adapter: Adapter, script: str) -> None:
        self._adapter = adapter
        self._script = script
        self._answers: dict[str, _Answer] = {}
        self._numbers = itertools.count()

    @property
    def has_work(self) -> bool:
        return bool(self._answers)

    def snapshot(self) -> EngineSnapshot:
        usage = Usage(generated=sum(answer.generated for answer in self._answers.values()))
        return EngineSnapshot(len(self._answers), 0, usage, MemoryStatistics(0, 0, 0, 0, None))

    def submit(self, request: InferenceRequest, prepared: PreparedPrompt) -> None:
        pieces = (self._script[i : i + PIECE] for i in range(0, len(self._script), PIECE))
        processor = self._adapter.new_stream_processor(prepared, self._new_call_id)
        self._answers[request.id] = _Answer(pieces, processor, len(prepared.tokens))

    def cancel(self, request_id: str) -> None:
        if request_id in self._answers:
            self._answers[request_id].cancelled = True

    def step(self) -> list[tuple[str, InferenceEvent]]:
        return [
            (name, event)
            for name, answer in list(self._answers.items())
            for event in self._next(name, answer)
        ]

    @property
    def idle_delay(self) -> float | None:
        return None

    def work_idly(self) -> None:
        pass

    def on_memory_wanted(self, call: Callable[[], None]) -> None:
        pass

    def release_memory(self) -> None:
        pass

    def release_caches(self) -> None:
        pass

    def close(self) -> None:
        self._answers.clear()

    def _next(self, name: str, answer: _Answer) -> list[InferenceEvent]:
        piece = None if answer.cancelled else next(answer.pieces, None)
        if piece is not None:
            answer.generated += 1
            return list(answer.processor.feed(piece))
        del self._answers[name]
        last: list[Any] = list(answer.processor.finish())
        return [*last, answer.finished()]

    def _new_call_id(self) -> str:
        return f"call_{next(self._numbers)}"
