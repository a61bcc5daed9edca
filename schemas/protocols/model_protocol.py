"""The messages between a model, its clients, and the pool that owns its memory.

Every message and every event is frozen plain data that could be serialized: an actor that forwards
`ModelMessage` can stand for a model on another machine. Answers travel on the reply that accompanies a
message (`greenroom.actors.core.ref`). Messages with the same reply belong to one request, and closing the
reply is the only way to cancel it. Only the pool's own answers, a ref and a lease
(`greenroom.actors.pool.lease_queue`), are handles within its process.

Nothing here depends on the model type: `RequestInput` holds a request's input, `InferenceEvent` its answer,
and `Usage` its resource usage.
"""

from __future__ import annotations

import attrs

from greenroom.schemas.events.events import FinishReason, Timing, Usage
from greenroom.schemas.events.explanation import Waits
from greenroom.schemas.events.statistics import EngineSnapshot
from greenroom.schemas.messages.requests import InferenceRequest
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.models.lifecycle import ModelState
from greenroom.schemas.problems import Problem
from greenroom.schemas.protocols.download_protocol import DownloadProgress


@attrs.frozen
class Prepare:
    """Validate and tokenize a request, which needs no weights. Reply: Admitted or Failed.

    The model keeps the prepared input until the reply closes; a Generate with the same reply reuses it.
    """

    request: InferenceRequest


@attrs.frozen
class RenderPrompt:
    """Render a prompt in the form that the model reads; needs no weights. Reply: PromptContents or Failed."""

    request: InferenceRequest


@attrs.frozen
class PromptContents:
    """The tokens and the text of a prompt.

    Args:
        tokens: Token ids, `[prompt]`.
        pieces: UTF-8 bytes of each token, which may be part of a character.
        text: Text of the whole prompt, including control tokens.
        context: Maximum length of prompt plus answer, in tokens.
        dropped_messages: Number of oldest messages omitted from the prompt.
    """

    tokens: tuple[int, ...]
    pieces: tuple[bytes, ...]
    text: str
    context: int
    dropped_messages: int = 0


@attrs.frozen
class Generate:
    """Generate the answer of a request, under a lease. Reply: events up to the last Finished, or Failed.

    The request need not be prepared, since the model may have been unloaded or restarted in the meantime;
    one elsewhere fails it as after a crash.
    Closing the reply cancels the request at the next step.

    Args:
        queued: Time waited so far, in seconds; included in the reported timing.
    """

    request: InferenceRequest
    queued: float = 0.0
    waits: Waits = Waits()


ModelMessage = Prepare | RenderPrompt | Generate


# Commands of the pool to a model


@attrs.frozen
class Open:
    """Enter LOADING, but only read the files, which tell the model's size. Reply: Sized."""


@attrs.frozen
class Reopen:
    """Read the files again before the next load, by changed settings; prepared prompts stay valid."""


@attrs.frozen
class Load:
    """Load the weights; memory for them has been reserved."""


@attrs.frozen
class WaitForMemory:
    """Enter WAITING: there are requests, but no memory for the weights yet."""


@attrs.frozen
class Unload:
    """Release the weights, even in the middle of a load: their memory is needed, and no lease is held.

    Args:
        reason: Cause of the unload, for the log.
        cause: Model that needs the memory; None if none does.
    """

    reason: str = ""
    cause: ModelKey | None = None


@attrs.frozen
class Trim:
    """Release all caches, of prefixes and of buffers, and stay loaded. Reply: Trimmed."""


@attrs.frozen
class DropAdapter:
    """Release the adapters of a folder, each once no row applies it any longer."""

    folder: str


@attrs.frozen
class FailRequests:
    problem: Problem


@attrs.frozen
class Stop:
    """End the model's actor. The pool sends this only if no weights are loaded and no request waits."""


ModelCommand = Open | Reopen | Load | WaitForMemory | Unload | Trim | DropAdapter | FailRequests | Stop


# Reports of a model, the pool's only source for its state


@attrs.frozen
class StateChanged:
    """A change of state to WAITING, LOADING, READY or UNLOADING; outcomes of a load have their own reports.

    Args:
        admits_all: True if the model is READY and admits requests without waiting for a slot.
    """

    state: ModelState
    admits_all: bool = False


@attrs.frozen
class Sized:
    """The size of the model, which its files tell.

    Args:
        need: Bytes that it needs in memory.
        limit: Bytes that all models may have together; None for no limit.
        estimated: Bytes of `need` that are only estimated, such as the working space of a step.
    """

    need: int
    limit: int | None = None
    estimated: int = 0


@attrs.frozen
class LoadProgress:
    """The progress of a load. `fraction`: fraction of the weights that is loaded, 0 to 1."""

    fraction: float


@attrs.frozen
class Unloaded:
    """A change to IDLE: the weights were released as requested, or never loaded.

    Args:
        freed: Bytes that were measured to be free again; None if nothing was loaded, or nothing measured.
    """

    freed: int | None = None


@attrs.frozen
class Trimmed:
    """The end of a release of caches. `freed`: bytes that were measured to be free again."""

    freed: int


@attrs.frozen
class LoadFailed:
    """A failed load: the model is in ERROR and uses no memory."""

    problem: Problem


@attrs.frozen
class LoadRefused:
    """A load for which the memory account had no room after all: the model is WAITING and uses no memory.

    Args:
        required: Bytes that the model asked for.
        available: Bytes that were left.
    """

    problem: Problem
    required: int
    available: int


@attrs.frozen
class Crashed:
    """A crash of a loaded model: it is in ERROR and uses no memory."""

    problem: Problem


@attrs.frozen
class WorkerHung:
    """A worker that hangs and cannot be ended: the model is in ERROR, and its memory stays reserved."""

    problem: Problem


@attrs.frozen
class HungWorkerReturned:
    """The late end of a hung worker: the model, still in ERROR, uses no more memory."""


@attrs.frozen
class PreparingChanged:
    """A change in whether the model can prepare prompts: it cannot until a lost tokenizer thread is replaced.

    Args:
        problem: The reason why it cannot; None if it can.
    """

    problem: Problem | None


@attrs.frozen
class RequestEnded:
    """The end of a request that the model had accepted.

    Args:
        reason: Finish reason of its last choice; None if it failed.
        problem: Code of the problem of a failed request; None if there is none.
        timing: Seconds of the choice that ended last; None if unknown.
        adapter: Name of the LoRA adapter that it applied; empty for none.
    """

    reason: FinishReason | None
    problem: str | None = None
    usage: Usage = Usage()
    timing: Timing | None = None
    texts: int = 0
    documents: int = 0
    adapter: str = ""


ModelReport = (
    StateChanged
    | Sized
    | LoadProgress
    | DownloadProgress
    | EngineSnapshot
    | RequestEnded
    | Unloaded
    | Trimmed
    | LoadFailed
    | LoadRefused
    | Crashed
    | WorkerHung
    | HungWorkerReturned
    | PreparingChanged
)
