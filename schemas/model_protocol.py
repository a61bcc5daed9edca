"""The one contract between whatever answers for a model, those who ask it, and the pool that owns its room.

Every message, and every event that answers it, is frozen plain data that could be serialized: a model on
another machine, or in a cloud, is an actor that understands `ModelMessage` and sends it on. Answers travel on
the reply that accompanies a message (`greenroom.actors.core.ref`); messages with the same reply belong to one
request, and its closing is the only way to cancel. Only what the pool hands out itself, a ref and a lease
(`greenroom.actors.pool.lease`), are handles of its own process.

Nothing here depends on the kind of the model: what it is asked stands in `RequestInput`, what it answers in
`InferenceEvent`, what it counts in `Usage`.
"""

from __future__ import annotations

import attrs

from greenroom.schemas.generation import GenerationParameters
from greenroom.schemas.lifecycle import ModelState
from greenroom.schemas.problems import Problem
from greenroom.schemas.requests import InferenceRequest


@attrs.frozen
class Prepare:
    """Check a request and make it ready, which needs no weights. Reply: Prepared or Failed.

    The model keeps what it made until the reply closes; a Generate with the same reply needs no other.
    """

    request: InferenceRequest


@attrs.frozen
class Prepared:
    """The request fits the model.

    Args:
        prompt_tokens: How many tokens its prompt has.
        dropped_messages: How many of the oldest messages were left out of it.
        system_prompt: See `greenroom.schemas.events.Admitted`, as for `parameters`.
    """

    prompt_tokens: int
    dropped_messages: int = 0
    system_prompt: str | None = attrs.field(default=None, repr=False)
    parameters: GenerationParameters | None = attrs.field(default=None, repr=False)


@attrs.frozen
class Inspect:
    """Show a prompt as the model reads it, which needs no weights. Reply: PromptContents or Failed."""

    request: InferenceRequest


@attrs.frozen
class PromptContents:
    """What a prompt consists of.

    Args:
        tokens: Their ids, `[prompt]`.
        pieces: What each of them writes, in UTF-8; it may be a part of a character.
        text: All of it, control tokens included.
        context: Tokens that the model takes, prompt and answer together.
        dropped_messages: How many of the oldest messages were left out of it.
    """

    tokens: tuple[int, ...]
    pieces: tuple[bytes, ...]
    text: str
    context: int
    dropped_messages: int = 0


@attrs.frozen
class Generate:
    """Answer a request, under a lease. Reply: events up to the last Finished, or Failed.

    The request need not be prepared: the model may have been unloaded, or restarted, since it was. Closing
    the reply cancels the request at the next step.

    Args:
        queued: Seconds that the request has waited so far; part of the timing that comes back.
    """

    request: InferenceRequest
    queued: float = 0.0


ModelMessage = Prepare | Inspect | Generate


# What the pool tells a model


@attrs.frozen
class Load:
    """Load the weights: there is room for them."""


@attrs.frozen
class WaitForRoom:
    """Be WAITING: requests have come, and there is no room yet."""


@attrs.frozen
class Unload:
    """Free the weights, in the middle of a load too: the room is needed, and nobody holds the model."""


@attrs.frozen
class FailRequests:
    """End every request that is under way."""

    problem: Problem


@attrs.frozen
class Stop:
    """End: the weights are not loaded, and nobody waits for them."""


ModelCommand = Load | WaitForRoom | Unload | FailRequests | Stop


# What a model reports to the pool, which keeps no other account of its state


@attrs.frozen
class StateChanged:
    """The model is WAITING, LOADING, READY or UNLOADING; what may come of a load has reports of its own.

    Args:
        admits_all: It is READY, and nobody needs to wait for a slot in it.
    """

    state: ModelState
    admits_all: bool = False


@attrs.frozen
class LoadProgress:
    """Part of the weights is loaded.

    Args:
        fraction: 0 to 1.
    """

    fraction: float


@attrs.frozen
class Unloaded:
    """The weights are freed as asked, or were never there: the model is IDLE."""


@attrs.frozen
class LoadFailed:
    """The model could not be opened or loaded: it is in ERROR, and needs no room."""

    problem: Problem


@attrs.frozen
class Crashed:
    """The model failed after it was loaded: it is in ERROR, and needs no room."""

    problem: Problem


@attrs.frozen
class WorkerHung:
    """The model's worker is silent and cannot be ended: it is in ERROR, and its room stays taken."""

    problem: Problem


@attrs.frozen
class HungWorkerReturned:
    """The silent worker has ended after all: the model, still in ERROR, needs no room any more."""


@attrs.frozen
class PreparingChanged:
    """Prompts are prepared, or are not: the thread that did so was lost, and no other has taken over yet.

    Args:
        problem: Why not.
    """

    problem: Problem | None


ModelReport = (
    StateChanged
    | LoadProgress
    | Unloaded
    | LoadFailed
    | Crashed
    | WorkerHung
    | HungWorkerReturned
    | PreparingChanged
)
