"""The contract between the pool and whatever answers for a model: its actor here, or one that forwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from greenroom.actors.core.ref import Ref
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.models.lifecycle import ModelState
from greenroom.schemas.protocols.model_protocol import ModelCommand, ModelMessage, ModelReport


class PooledModel(Protocol):
    """An actor that answers for a model under the pool's supervision.

    It obeys the pool's commands and reports each change of its state. If it takes no room, it is loaded
    whenever a request wants it, and never unloaded for others.
    """

    @property
    def key(self) -> ModelKey:
        """Key of the model."""

    @property
    def ref(self) -> Ref[ModelMessage]:
        """Reference to the actor, for requests."""

    @property
    def slots(self) -> int:
        """Number of answers that it generates at once, at least 1."""

    @property
    def takes_room(self) -> bool:
        """True if it needs memory of this machine, and thus a place among the loaded models."""

    @property
    def released(self) -> bool:
        """True if nothing of its memory is in use."""

    def send(self, command: ModelCommand) -> None:
        """Queue a command for execution after the earlier ones; never blocks."""

    async def run(self) -> None:
        """Receive messages until stopped."""

    async def wait_released(self) -> None:
        """Wait until a crashed or stopped actor's memory is released."""


MakeModel = Callable[[ModelKey, ModelState, Callable[[ModelReport], None]], PooledModel]
"""Function that creates a model's actor in a state, with the callback for its reports; it must not block."""
