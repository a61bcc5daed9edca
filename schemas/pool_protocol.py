"""What can be asked of the pool, and what it answers.

It is plain data, as all that a model is asked, but for the handles that `Acquire` is answered with
(`greenroom.actors.pool.lease`).
"""

from __future__ import annotations

import attrs

from greenroom.schemas.capabilities import CapabilityRecord
from greenroom.schemas.lifecycle import ModelState
from greenroom.schemas.model_description import ModelDescription
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.problems import Problem


@attrs.frozen
class ModelStatus:
    """What operators see of one model.

    Args:
        running: Requests it generates for.
        slots: Answers that these may have under way.
        waiting: Requests that wait for a slot.
        problem: Why it is in ERROR.
        load_progress: Fraction of the weights that are loaded, 0 to 1.
        hung: Its worker has given no sign of life for too long; only a new process can mend that.
        prepares: A thread takes its prompts, or one will with its first request.
        hung_threads: Those that were lost over its work and have not ended.
    """

    key: ModelKey
    state: ModelState
    running: int = 0
    slots: int = 0
    waiting: int = 0
    problem: str | None = None
    load_progress: float = 0.0
    hung: bool = False
    prepares: bool = True
    hung_threads: int = 0

    @property
    def responds(self) -> bool:
        """Whether requests for it are answered, sooner or later."""
        return self.prepares and not self.hung


@attrs.frozen
class Acquire:
    """Ask for slots in a model that is ready, loading it if need be.

    Reply: Found, then QueueStatus any number of times, then Granted; or Failed at any point.

    Args:
        choices: Answers that are wanted: each takes a slot, as far as the model has so many.
    """

    key: ModelKey
    request_id: str = ""
    choices: int = 1


@attrs.frozen
class Consult:
    """Ask for a model without slots in it, for what needs no weights: it can prepare requests.

    Reply: Found, or Failed. The model's actor stays until the reply closes.
    """

    key: ModelKey
    request_id: str = ""


@attrs.frozen
class ListModels:
    """Reply: ModelList."""


@attrs.frozen
class ModelCard:
    """One entry of `GET /v1/models`. `created` is a Unix time in seconds.

    Args:
        record: What it can do; None if its files are not here or cannot be used.
        thinks: Its chat template knows thoughts.
    """

    id: str
    created: int
    owned_by: str
    record: CapabilityRecord | None = None
    thinks: bool = False


@attrs.frozen
class FindModel:
    """Ask what a name means: a model's own, an alias, or one that fits a pattern. Reply: ModelCard."""

    name: str


@attrs.frozen
class DescribeModel:
    """Ask what the files of a model tell; reads them. Reply: ModelDescriptions.

    Args:
        name: None asks for every model.
    """

    name: str | None = None


@attrs.frozen
class ModelDescriptions:
    """What was asked for, in the order of the models."""

    models: tuple[ModelDescription, ...]


@attrs.frozen
class ModelList:
    """The names that can be asked for: models, those of the command line first, then aliases."""

    models: tuple[ModelCard, ...]


@attrs.frozen
class DescribePool:
    """Reply: PoolStatus."""


@attrs.frozen
class PoolStatus:
    """What operators see of the pool: the models that are known to it, and whether it takes requests.

    Args:
        draining: Why it takes none, if it drains.
    """

    models: tuple[ModelStatus, ...]
    draining: Problem | None = None

    @property
    def ready(self) -> bool:
        """Whether new requests should be sent here.

        A model that hangs on the device can be mended by a new process alone; one whose files alone are to
        blame leaves the others to answer.
        """
        if self.draining is not None or any(model.hung for model in self.models):
            return False
        return not self.models or any(model.responds for model in self.models)


@attrs.frozen
class Drain:
    """Take no new requests; what was accepted is finished. Reply, if one is wanted: Drained."""


@attrs.frozen
class Drained:
    """No request is left."""


PoolMessage = Acquire | Consult | DescribeModel | FindModel | ListModels | DescribePool | Drain
