"""Transcription engines on the tests' own thread, and their transcripts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

from greenroom.engine.catalog.kind_detection import detect
from greenroom.engine.resources.memory_account import MemoryAccount
from greenroom.engine.resources.residence import ModelLoad
from greenroom.engine.sound.transcription.transcription_adapter import (
    TranscriptionAdapter,
    make_transcription_adapter,
)
from greenroom.engine.sound.transcription.transcription_engine import (
    TranscriptionEngine,
    open_transcription_engine,
)
from greenroom.schemas.events.events import Failed, Finished, InferenceEvent
from greenroom.schemas.events.result_events import Recording, Segment
from greenroom.schemas.messages.requests import InferenceRequest, TranscriptionInput
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.engines.fixed_costs import CountedClock
from greenroom.tests.support.engines.stepped_engines import SteppedEngine

_IDS = itertools.count()


@attrs.define
class Transcriber(SteppedEngine):
    """An engine with its adapter.

    Attributes:
        events: Events by request id.
    """

    adapter: TranscriptionAdapter
    engine: TranscriptionEngine
    events: dict[str, list[InferenceEvent]] = attrs.field(factory=dict)

    def submit(self, file: Path, client: str = "", **asked: Any) -> str:
        """Prepare and submit a request; return its id."""
        request = InferenceRequest(
            f"req_{next(_IDS)}", ModelKey("whisper"), TranscriptionInput(str(file), **asked), client=client
        )
        prepared = self.adapter.prepare_input(request)
        self.events[request.id] = []
        self.engine.submit(request, prepared)
        return request.id

    def transcribe(self, file: Path, **asked: Any) -> Transcript:
        """Return the transcript of one request."""
        request_id = self.submit(file, **asked)
        self.run()
        return Transcript.of(self.events[request_id])

    def ended(self, request_id: str) -> bool:
        """Return whether a request has had its last event."""
        return bool(self.events[request_id]) and isinstance(self.events[request_id][-1], Finished | Failed)


@attrs.frozen
class Transcript:
    """The events of one request, by type."""

    segments: list[Segment]
    recording: Recording | None
    end: Finished | Failed

    @classmethod
    def of(cls, events: list[InferenceEvent]) -> Transcript:
        """Sort events by type."""
        recordings = [event for event in events if isinstance(event, Recording)]
        end = events[-1]
        assert isinstance(end, Finished | Failed)
        segments = [event for event in events if isinstance(event, Segment)]
        return cls(segments, recordings[-1] if recordings else None, end)

    @property
    def text(self) -> str:
        """Text of all segments."""
        return "".join(segment.text for segment in self.segments)


@contextmanager
def open_transcriber(folder: Path, account: MemoryAccount | None = None) -> Iterator[Transcriber]:
    """Load a model, and close its engine afterwards."""
    record = detect(folder)
    adapter = make_transcription_adapter("whisper", folder, record)
    engine = open_transcription_engine(
        ModelLoad(folder, record, Settings(), account=account or MemoryAccount(), clock=CountedClock())
    )
    try:
        yield Transcriber(adapter, engine)
    finally:
        engine.close()
