"""What the responses actor hands out: a place in a run's log, and a claim on a conversation."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import trio

from greenroom.actors.core.reply import Grant
from greenroom.actors.responses.event_log import EventLog
from greenroom.schemas.events import Failed
from greenroom.schemas.responses_protocol import RunEnded, RunEvent
from greenroom.schemas.stored import StoredResponse

_AT_ONCE = 256
"""Entries that are handed over at once: formatting a long log must not keep everybody else waiting."""


class Subscription:
    """Reads one run's log from its beginning; a source of events for whoever streams them.

    A reader that stalls costs nothing but its place: the log is the run's own.

    Args:
        on_close: Is called once.
    """

    def __init__(self, log: EventLog, on_close: Callable[[], None] = lambda: None) -> None:
        self._log = log
        self._place = 0
        self._on_close: Callable[[], None] | None = on_close

    @property
    def model(self) -> str | None:
        """Which model answers, by its own name; known before the first entry."""
        return self._log.model

    async def receive(self) -> RunEvent:
        """Return the next entry. May be cancelled and called again.

        Raises:
            trio.EndOfChannel: That was the last one.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        while not (entries := self._log.entries(self._place, 1)):
            if self._log.ended:
                raise trio.EndOfChannel
            await self._log.changed.park()
        self._place += 1
        return entries[0]

    def receive_ready(self) -> list[RunEvent]:
        """Return the entries that need not be waited for, not too many of them."""
        entries = self._log.entries(self._place, _AT_ONCE)
        self._place += len(entries)
        return entries

    async def wait_ended(self) -> RunEnded | Failed:
        """Read nothing, and return the last entry when it is there."""
        await trio.lowlevel.checkpoint_if_cancelled()
        while not self._log.ended:
            await self._log.changed.park()
        last = self._log.entries(-1)[0]
        assert isinstance(last, RunEnded | Failed)
        return last

    def close(self) -> None:
        """Read no more; closing twice does nothing."""
        on_close, self._on_close = self._on_close, None
        if on_close is not None:
            on_close()


@attrs.frozen(eq=False)
class Subscribed(Grant):
    """The run can be read; it is given back if nobody takes it.

    Args:
        response: As it is stored, finished or not; None if it is not stored before it ends.
    """

    subscription: Subscription
    response: StoredResponse | None

    def close(self) -> None:
        """Close the subscription."""
        self.subscription.close()


class ConversationHeld(Grant):
    """A claim on a conversation for one turn.

    Args:
        release: Is called once, with the conversation.
    """

    def __init__(self, conversation: str, release: Callable[[str], None]) -> None:
        self.conversation = conversation
        self._release: Callable[[str], None] | None = release

    def take(self) -> ConversationHeld:
        """Return the claim as the taker's own: closing this one does nothing any more."""
        release, self._release = self._release, None
        return ConversationHeld(self.conversation, release or (lambda _: None))

    def close(self) -> None:
        """Give the conversation free; closing twice does nothing."""
        release, self._release = self._release, None
        if release is not None:
            release(self.conversation)
