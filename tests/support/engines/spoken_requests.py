"""Speech requests, and engines that answer them without actors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from greenroom.engine.catalog.kind_detection import detect
from greenroom.engine.resources.memory_account import MemoryAccount
from greenroom.engine.resources.residence import ModelLoad
from greenroom.engine.sound.speech.speech_adapter import SpeechAdapter
from greenroom.engine.sound.speech.speech_engine import SpeechEngine, open_speech_adapter, open_speech_engine
from greenroom.schemas.events.events import InferenceEvent
from greenroom.schemas.events.result_events import AudioChunk
from greenroom.schemas.messages.requests import InferenceRequest, SpeechInput
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.engines.fixed_costs import CountedClock


def spoken(text: str, ident: str = "req_1", client: str = "", **fields: Any) -> InferenceRequest:
    """Return a speech request."""
    return InferenceRequest(ident, ModelKey("voice"), SpeechInput(text, **fields), client=client)


def open_adapter(folder: Path) -> SpeechAdapter:
    """Return the adapter of a model."""
    return open_speech_adapter(folder, detect(folder), folder.name)


def open_engine(folder: Path, account: MemoryAccount | None = None) -> SpeechEngine:
    """Load a model on this thread."""
    return open_speech_engine(
        ModelLoad(
            folder, detect(folder), Settings(), account=account or MemoryAccount(), clock=CountedClock()
        )
    )


def run(engine: SpeechEngine, steps: int = 10_000) -> Iterator[tuple[str, InferenceEvent]]:
    """Yield the events of steps until the engine has no work."""
    for _ in range(steps):
        if not engine.has_work:
            return
        yield from engine.step()


def samples_of(events: list[tuple[str, InferenceEvent]], ident: str = "req_1") -> npt.NDArray[np.int16]:
    """Return all samples of a request."""
    chunks = [event.samples for name, event in events if name == ident and isinstance(event, AudioChunk)]
    return np.frombuffer(b"".join(chunks), dtype="<i2")
