"""A hold on a loaded model, and the pool's answers that carry it."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

import attrs

from greenroom.actors.core.ref import Ref
from greenroom.actors.core.reply import Grant
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.model_protocol import ModelMessage


class Lease:
    """Slots in a model that is ready; while it is open the model is not unloaded.

    It closes synchronously, so it can be released in the middle of a cancellation.

    Args:
        slots: How many.
    """

    def __init__(
        self, key: ModelKey, model: Ref[ModelMessage], slots: int, release: Callable[[Lease], None]
    ) -> None:
        self.key = key
        self.model = model
        self.slots = slots
        self._release: Callable[[Lease], None] | None = release

    def close(self) -> None:
        """Release the slots; closing twice does nothing."""
        release, self._release = self._release, None
        if release is not None:
            release(self)

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@attrs.frozen(eq=False)
class Found:
    """The model exists: `model` can prepare requests, weights or not.

    Args:
        key: The model's own name, where the request used another (`default`).
    """

    key: ModelKey
    model: Ref[ModelMessage]


@attrs.frozen(eq=False)
class Granted(Grant):
    """The request may generate under `lease`."""

    lease: Lease

    def close(self) -> None:
        """Release the slots."""
        self.lease.close()
