"""Embedding models without actors: an adapter, an engine, and the vectors of texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, cast

import attrs
import numpy as np
from numpy.typing import NDArray

from greenroom.actors.engines.engine_protocol import ModelFolder
from greenroom.actors.engines.kind_engines import open_adapter
from greenroom.engine.catalog.kind_detection import detect
from greenroom.engine.encoding.embedding_adapter import EmbeddingAdapter
from greenroom.engine.encoding.embedding_model import open_embedding_engine
from greenroom.engine.encoding.encoder_engine import EncoderEngine, Events
from greenroom.engine.encoding.row_queue import TARGET
from greenroom.engine.resources.memory_account import MemoryAccount
from greenroom.engine.resources.residence import ModelLoad
from greenroom.schemas.events.events import Failed, Finished, InferenceEvent
from greenroom.schemas.events.result_events import Vector
from greenroom.schemas.messages.requests import EmbeddingInput, InferenceRequest
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.engines.fixed_costs import CountedClock


@attrs.define
class Embedder:
    """An embedding model loaded on this thread."""

    adapter: EmbeddingAdapter
    engine: EncoderEngine
    account: MemoryAccount

    def submit(
        self, texts: Iterable[str | tuple[int, ...]], request_id: str = "r", client: str = "", **asked: Any
    ) -> None:
        """Submit an embedding request."""
        request = embedding_request(texts, request_id, client, **asked)
        self.engine.submit(request, self.adapter.prepare_input(request))

    def run(self) -> dict[str, list[InferenceEvent]]:
        """Step until all requests are done; return the events by request."""
        events: dict[str, list[InferenceEvent]] = {}
        while self.engine.has_work:
            collect(self.engine.step(), events)
        return events

    def embed(self, texts: Iterable[str | tuple[int, ...]], **asked: Any) -> NDArray[np.float32]:
        """Return the vectors of texts in one request, `[texts, dimensions]`."""
        self.submit(texts, **asked)
        [events] = self.run().values()
        return vectors(events)

    def embed_alone(self, texts: Iterable[str]) -> NDArray[np.float32]:
        """Return the vectors of texts, each in a request of its own."""
        return np.concatenate([self.embed((text,)) for text in texts])


def open_adapter_of(folder: Path) -> EmbeddingAdapter:
    """Return the adapter of a model, without its weights."""
    model = ModelFolder(folder.name, folder, detect(folder, name=folder.name))
    return cast("EmbeddingAdapter", open_adapter(model, Settings(), ""))


def open_embedder(folder: Path, settings: Settings | None = None) -> Embedder:
    """Load a model on this thread."""
    settings, account = settings or Settings(), MemoryAccount((settings or Settings()).memory_bytes)
    load = ModelLoad(folder, detect(folder), settings, account=account, clock=CountedClock(tick=TARGET))
    return Embedder(open_adapter_of(folder), open_embedding_engine(load), account)


def embedding_request(
    texts: Iterable[str | tuple[int, ...]], request_id: str = "r", client: str = "", **asked: Any
) -> InferenceRequest:
    """Return an embedding request."""
    return InferenceRequest(
        request_id, ModelKey("default"), EmbeddingInput(tuple(texts), **asked), client=client
    )


def collect(stepped: Events, events: dict[str, list[InferenceEvent]]) -> None:
    """Add a step's events to those of their requests."""
    for request_id, event in stepped:
        events.setdefault(request_id, []).append(event)


def vectors(events: Sequence[InferenceEvent]) -> NDArray[np.float32]:
    """Return the vectors of a successful request, `[texts, dimensions]`."""
    assert isinstance(events[-1], Finished), events[-1]
    found = {event.index: event.values for event in events if isinstance(event, Vector)}
    assert sorted(found) == list(range(len(found)))
    return np.stack([np.frombuffer(found[at], "<f4") for at in sorted(found)])


def failure(events: Sequence[InferenceEvent]) -> Failed:
    """Return the failure of a request."""
    assert isinstance(events[-1], Failed), events[-1]
    return events[-1]
