"""What actors ask of the code of a kind of model: an adapter, which needs no weights, and an engine."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

import attrs

from greenroom.schemas.capabilities import CapabilityRecord
from greenroom.schemas.events import InferenceEvent
from greenroom.schemas.model_protocol import PromptContents
from greenroom.schemas.prepared_input import PreparedInput
from greenroom.schemas.requests import InferenceRequest


@attrs.frozen
class ModelFolder:
    """A model whose files are here and whose kind is known.

    Args:
        id: The model's own.
    """

    id: str
    folder: Path
    record: CapabilityRecord


PreparedT = TypeVar("PreparedT", contravariant=True)


class Engine(Protocol[PreparedT]):
    """A loaded model, confined to one worker; each kind of model has its own (`engine.text_engine`).

    Every request ends with a Finished for each choice, a cancelled one too, or with one Failed.
    """

    @property
    def has_work(self) -> bool:
        """Whether `step` has something to do."""

    def submit(self, request: InferenceRequest, prepared: PreparedT) -> None:
        """Begin a request that this kind's adapter has prepared, at the next step."""

    def cancel(self, request_id: str) -> None:
        """End a request at the next step; unknown ids are ignored."""

    def step(self) -> list[tuple[str, InferenceEvent]]:
        """Compute one step for all that runs; return its events with the ids of their requests."""

    @property
    def idle_delay(self) -> float | None:
        """Seconds without work or commands after which `work_idly` has something to do; None: it has not."""

    def work_idly(self) -> None:
        """Do a short piece of what can wait while there is no work."""

    def on_memory_wanted(self, call: Callable[[], None]) -> None:
        """Have `call` called, on any thread, when another model wants memory of the prefix cache."""

    def release_memory(self) -> None:
        """Free memory that another model has asked for."""

    def close(self) -> None:
        """Drop the weights."""


class SuspendedRequest(Protocol):
    """A request that has left its engine, and stands where it can go on in the model's next one."""

    def close(self) -> None:
        """Let go of what it holds, since nobody will go on with it; on any thread, and without blocking."""


@runtime_checkable
class SuspendableEngine(Engine[PreparedT], Protocol):
    """An engine that takes all requests at once, since what waits for its turn inside it costs nothing.

    It need not finish them to give its room up: each goes on, where it stands, in the model's next engine.
    """

    def suspend(self) -> Mapping[str, SuspendedRequest] | None:
        """Give all requests away, by their ids, as what `resume` takes; None: not before another step."""

    def unbegun(self) -> Mapping[str, SuspendedRequest]:
        """Return likewise those on which nothing was computed, after a step has raised."""

    def resume(self, suspended: Any) -> None:
        """Go on with a request that an engine before has given away, at the next step.

        Raises:
            ProblemError: It cannot be answered.
        """


class PromptAdapter(Protocol):
    """The part of an adapter that needs no weights (`greenroom.engine.adapters`)."""

    def prepare_input(self, request: InferenceRequest) -> PreparedInput:
        """Tokenize a request, resolve its parameters, and check both.

        Raises:
            ProblemError: The request cannot be answered.
        """


@runtime_checkable
class PromptInspector(PromptAdapter, Protocol):
    """An adapter whose requests have prompts that can be shown."""

    def inspect_prompt(self, request: InferenceRequest) -> PromptContents:
        """Return a request's prompt as the model reads it.

        Raises:
            ProblemError: The request cannot be answered.
        """


@runtime_checkable
class SlicingAdapter(PromptAdapter, Protocol):
    """An adapter whose requests may take so long to prepare that others go on in between."""

    def prepare_slices(self, request: InferenceRequest) -> Generator[object, None, PreparedInput]:
        """Prepare a request, yielding wherever it can be left for others, or for good; return what it is.

        Where it waits for something else it yields `greenroom.engine.slices.WAITS`.

        Raises:
            ProblemError: The request cannot be answered.
        """


@runtime_checkable
class SlicingInspector(PromptAdapter, Protocol):
    """An adapter whose prompts may take as long to show."""

    def inspect_slices(self, request: InferenceRequest) -> Generator[object, None, PromptContents]:
        """Return a request's prompt as the model reads it, yielding as `SlicingAdapter.prepare_slices` does.

        Raises:
            ProblemError: The request cannot be answered.
        """
