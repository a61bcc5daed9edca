"""Interfaces of a model type's code for the actors: an adapter, which needs no weights, and an engine."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

import attrs

from greenroom.schemas.events.events import InferenceEvent
from greenroom.schemas.events.statistics import EngineSnapshot
from greenroom.schemas.messages.prepared_input import PreparedInput
from greenroom.schemas.messages.requests import InferenceRequest
from greenroom.schemas.models.capabilities import CapabilityRecord
from greenroom.schemas.protocols.model_protocol import PromptContents


@attrs.frozen
class ModelFolder:
    """A model with local files and known capabilities."""

    id: str
    folder: Path
    record: CapabilityRecord


PreparedT = TypeVar("PreparedT", contravariant=True)


class Engine(Protocol[PreparedT]):
    """A loaded model, confined to one worker; each model type has its own engine (`engine.text.text_engine`).

    Every request, even a cancelled one, ends with a Finished for each choice, or with one Failed.
    """

    @property
    def has_work(self) -> bool:
        """True if `step` has work to do."""

    def snapshot(self) -> EngineSnapshot:
        """Return the engine's present figures, with the usage of unfinished requests."""

    def submit(self, request: InferenceRequest, prepared: PreparedT) -> None:
        """Start a request that the adapter has prepared, at the next step."""

    def cancel(self, request_id: str) -> None:
        """End a request at the next step; unknown ids are ignored."""

    def step(self) -> list[tuple[str, InferenceEvent]]:
        """Compute one step of all running requests, and return events with their request ids."""

    @property
    def idle_delay(self) -> float | None:
        """Delay in seconds, without work or commands, before `work_idly` has work; None if it has none."""

    def work_idly(self) -> None:
        """Do a short piece of deferred work while idle."""

    def on_memory_wanted(self, call: Callable[[], None]) -> None:
        """Set a callback, called on any thread, for when another model needs memory of the prefix cache."""

    def release_memory(self) -> None:
        """Release memory that another model has requested."""

    def release_caches(self) -> None:
        """Release all memory that only saves work: cached prefixes and features, of requests that ended."""

    def close(self) -> None:
        """Release the weights."""


class SuspendedRequest(Protocol):
    """A request removed from its engine, with the state to resume in the model's next one."""

    def close(self) -> None:
        """Release the request's resources if it will not be resumed; on any thread, without blocking."""


@runtime_checkable
class SuspendableEngine(Engine[PreparedT], Protocol):
    """An engine that admits all requests at once, since requests that wait inside it cost nothing.

    It can release its memory without finishing them: each resumes in the model's next engine.
    """

    def suspend(self) -> Mapping[str, SuspendedRequest] | None:
        """Remove all requests and return them by id, for `resume`; None if another step is needed first."""

    def unbegun(self) -> Mapping[str, SuspendedRequest]:
        """Return, after a step has raised, the requests of which nothing was computed."""

    def resume(self, suspended: Any) -> None:
        """Resume, at the next step, a request that an earlier engine has suspended. Raises ProblemError: the
        request cannot be answered.
        """


@runtime_checkable
class AdaptingEngine(Protocol):
    """An engine that applies LoRA adapters to its model."""

    def drop_adapter(self, folder: str) -> None:
        """Release the adapters of a folder, each once no row applies it any longer."""


class PromptAdapter(Protocol):
    """The part of an adapter that needs no weights (`greenroom.engine.adapters`)."""

    def prepare_input(self, request: InferenceRequest) -> PreparedInput:
        """Tokenize a request, resolve its parameters, and check both. Raises ProblemError: the request cannot
        be answered.
        """


@runtime_checkable
class RenderingAdapter(PromptAdapter, Protocol):
    def render_prompt(self, request: InferenceRequest) -> PromptContents:
        """Return the text and the tokens of a request's prompt. Raises ProblemError: the request cannot be
        answered.
        """


@runtime_checkable
class CooperativeAdapter(PromptAdapter, Protocol):
    """An adapter that prepares long requests in steps, so that others can run in between."""

    def prepare_in_steps(self, request: InferenceRequest) -> Generator[object, None, PreparedInput]:
        """Prepare a request, yielding wherever it may be paused or abandoned; return the prepared input.

        It yields `greenroom.engine.resources.preparation_steps.PENDING` while it waits for other work.

        Raises:
            ProblemError: The request cannot be answered.
        """


@runtime_checkable
class CooperativeRenderer(PromptAdapter, Protocol):
    def render_in_steps(self, request: InferenceRequest) -> Generator[object, None, PromptContents]:
        """Return the text and the tokens of a prompt, yielding as `CooperativeAdapter.prepare_in_steps` does.
        Raises ProblemError: the request cannot be answered.
        """
