"""Models that say what a test wants to hear, read by the real adapter of a real tiny model."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, cast

import attrs

from greenroom.actors.engines import Engine, Engines, OpenedModel
from greenroom.engine.adapters.adapter import Adapter
from greenroom.engine.parsers.stream_processor import StreamProcessor
from greenroom.schemas.events import Finished, InferenceEvent, Usage
from greenroom.schemas.prepared_input import PreparedInput
from greenroom.schemas.requests import InferenceRequest
from greenroom.schemas.settings import Settings

PIECE = 3


class ScriptedEngines(Engines):
    """Every model says `script(adapter)`, three characters at a time."""

    def __init__(self, settings: Settings, script: Callable[[Adapter], str]) -> None:
        super().__init__(settings)
        self._script = script

    def load_engine(
        self, opened: OpenedModel, progress: Callable[[float], None], abandoned: Callable[[], bool]
    ) -> Engine:
        adapter = cast("Adapter", opened.adapter)
        return ScriptedEngine(adapter, self._script(adapter))


@attrs.define
class _Row:
    pieces: Iterator[str]
    processor: StreamProcessor
    prompt: int
    generated: int = 0


class ScriptedEngine:
    """An engine without weights."""

    def __init__(self, adapter: Adapter, script: str) -> None:
        self._adapter = adapter
        self._script = script
        self._rows: dict[str, _Row] = {}
        self._numbers = itertools.count()

    @property
    def has_work(self) -> bool:
        return bool(self._rows)

    def submit(self, request: InferenceRequest, prepared: PreparedInput) -> None:
        pieces = (self._script[i : i + PIECE] for i in range(0, len(self._script), PIECE))
        processor = self._adapter.new_stream_processor(prepared, self._new_call_id)
        self._rows[request.id] = _Row(pieces, processor, len(prepared.tokens))

    def cancel(self, request_id: str) -> None:
        self._rows.pop(request_id, None)

    def step(self) -> list[tuple[str, InferenceEvent]]:
        return [(name, event) for name, row in list(self._rows.items()) for event in self._next(name, row)]

    def on_memory_wanted(self, call: Callable[[], None]) -> None:
        pass

    def release_memory(self) -> None:
        pass

    def close(self) -> None:
        self._rows.clear()

    def _next(self, name: str, row: _Row) -> list[InferenceEvent]:
        piece = next(row.pieces, None)
        if piece is not None:
            row.generated += 1
            return list(row.processor.feed(piece))
        del self._rows[name]
        last: list[Any] = list(row.processor.finish())
        usage = Usage(row.prompt, row.generated, reasoning=row.processor.reasoning_tokens)
        return [*last, Finished("tool_calls" if row.processor.has_tool_calls else "stop", usage)]

    def _new_call_id(self) -> str:
        return f"call_{next(self._numbers)}"
