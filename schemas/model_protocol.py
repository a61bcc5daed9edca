"""The one contract between the pool, its callers and whatever answers for a model.

Every message, and every event that answers it, is frozen plain data that could be serialized: a model on
another machine, or in a cloud, is an actor that understands `ModelMessage` and sends it on. Answers travel on
the reply that accompanies a message (`greenroom.actors.core.ref`); messages with the same reply belong to one
request, and its closing is the only way to cancel. Nothing here depends on the kind of the model: what it is
asked stands in `RequestInput`, what it answers in `InferenceEvent`, what it counts in `Usage`.
"""

from __future__ import annotations

import attrs

from greenroom.schemas.lifecycle import ModelState
from greenroom.schemas.model_key import ModelKey
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
    """

    prompt_tokens: int


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


ModelMessage = Prepare | Generate


@attrs.frozen
class ModelStatus:
    """What operators see of one model.

    Args:
        running: Requests it generates for.
        waiting: Requests that wait for a slot.
        problem: Why it is in ERROR.
        load_progress: Fraction of the weights that are loaded, 0 to 1.
        hung: Its worker has given no sign of life for too long; only a new process can mend that.
    """

    key: ModelKey
    state: ModelState
    running: int = 0
    waiting: int = 0
    problem: str | None = None
    load_progress: float = 0.0
    hung: bool = False


@attrs.frozen
class Acquire:
    """Ask for a slot in a model that is ready, loading it if need be.

    Reply: Found, then QueueStatus any number of times, then Granted; or Failed at any point.
    """

    key: ModelKey
    request_id: str = ""


@attrs.frozen
class ListModels:
    """Reply: ModelList."""


@attrs.frozen
class ModelCard:
    """One entry of `GET /v1/models`. `created` is a Unix time in seconds."""

    id: str
    created: int
    owned_by: str


@attrs.frozen
class ModelList:
    """The models that can be asked for, those of the command line first."""

    models: tuple[ModelCard, ...]


@attrs.frozen
class DescribePool:
    """Reply: PoolStatus."""


@attrs.frozen
class PoolStatus:
    """What operators see of the pool: the models that are known to it, and whether it takes requests."""

    models: tuple[ModelStatus, ...]
    draining: bool = False

    @property
    def ready(self) -> bool:
        """Whether new requests should be sent here."""
        return not self.draining and not any(model.hung for model in self.models)


@attrs.frozen
class Drain:
    """Take no new requests; what was accepted is finished. Reply, if one is wanted: Drained."""


@attrs.frozen
class Drained:
    """No request is left."""


PoolMessage = Acquire | ListModels | DescribePool | Drain
