"""What a model actor is told by its pool, its requests and its watch, and what it tells the pool."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import attrs
import trio

from greenroom.actors.core.ref import Control
from greenroom.actors.model.model_loop import ModelLoop
from greenroom.actors.model.preparations import Preparation
from greenroom.actors.model.running_requests import RunningRequest
from greenroom.schemas.lifecycle import ModelState
from greenroom.schemas.problems import Problem

if TYPE_CHECKING:
    from greenroom.actors.model.model import Model


@attrs.frozen(eq=False)
class ModelStateChanged:
    """A model tells the pool where it stands.

    Args:
        problem: Why it is in ERROR.
        in_load: It never got to READY.
        progress: Fraction of the weights that are loaded.
    """

    model: Model
    state: ModelState
    problem: Problem | None = None
    in_load: bool = False
    hung: bool = False
    progress: float = 0.0


@attrs.frozen
class Load:
    """There is room."""


@attrs.frozen
class Unload:
    """The room is needed, and nobody holds the model."""


@attrs.frozen
class Stop:
    """Nobody wants the model any more."""


@attrs.frozen
class FailAll:
    """Every request that is under way has to end."""

    problem: Problem


@attrs.frozen(eq=False)
class ReplyClosed:
    """Whoever sent a request takes no more events: it has ended, or its owner has left."""

    request: Preparation | RunningRequest


@attrs.frozen(eq=False)
class WorkerStalled:
    """A worker has given no sign of life for too long."""

    loop: ModelLoop


async def watch_silence(loop: ModelLoop, seconds: float, control: Control[Any]) -> None:
    """Report a worker that is busy and gives no sign of life, once."""
    while not loop.ended:
        await trio.sleep(seconds / 4)
        since = loop.busy_since
        if since is not None and time.monotonic() - since > seconds:
            control.send(WorkerStalled(loop))
            return
