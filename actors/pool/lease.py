"""Leases on loaded models, and the pool's answers to requests for them."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

import attrs

from greenroom.actors.core.ref import Ref
from greenroom.actors.core.reply import Grant
from greenroom.actors.pool.tickets import Ticket
from greenroom.schemas.messages.generation import Overrides
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.protocols.model_protocol import ModelMessage


@attrs.frozen
class NameFound:
    """A request named a profile, or a list of models. Sent before the model itself, and before any failure.

    Args:
        key: Key with the model's own name.
        profile: Name of the profile; None for none.
        defaults: Generation parameters of the profile.
        replaceable: True if the name means another model, should this one not load.
    """

    key: ModelKey
    profile: str | None
    defaults: Overrides
    replaceable: bool


class Lease:
    """A lease of slots in a ready model, which is not unloaded while the lease is open.

    Closing is synchronous, so a lease can be released during a cancellation.

    Args:
        ticket: Request that waited for it.
        release: Callback for each release of slots, of which `slots` are left.
    """

    def __init__(
        self, key: ModelKey, model: Ref[ModelMessage], ticket: Ticket, release: Callable[[Lease], None]
    ) -> None:
        self.key = key
        self.model = model
        self.ticket = ticket
        self.slots = ticket.slots
        self.priority = ticket.priority
        self._release: Callable[[Lease], None] | None = release

    def shrink(self, slots: int) -> None:
        """Release all but some slots, at least 1; an open lease may not grow."""
        if slots < self.slots and self._release is not None:
            self.slots = slots
            self._release(self)

    def close(self) -> None:
        """Release the slots; closing twice does nothing."""
        release, self._release, self.slots = self._release, None, 0
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
    """The answer that the model exists: `model` can prepare requests, even without weights.

    Args:
        key: Key with the model's own name, even if the request used another (`default`).
    """

    key: ModelKey
    model: Ref[ModelMessage]


@attrs.frozen(eq=False)
class Granted(Grant):
    """The answer that the request may generate under `lease`."""

    lease: Lease

    def close(self) -> None:
        self.lease.close()
