"""Handles that the responses actor returns: a position in a run's log, and a conversation lock."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import trio

from greenroom.actors.core.reply import Grant
from greenroom.actors.responses.event_log import EventLog
from greenroom.schemas.events.events import Failed
from greenroom.schemas.protocols.responses_protocol import RunEnded, RunEvent
from greenroom.schemas.stored import StoredResponse

_AT_ONCE = 256
"""Maximum number of entries returned at once, so that formatting a long log does not block other tasks."""


class Subscription:
    """A reader of a run's log, from its beginning, for streaming.

    A slow reader costs no memory, since the log belongs to the run.

    Args:
        on_close: Callback, called once.
    """

    def __init__(self, log: EventLog, on_close: Callable[[], None] = lambda: None) -> None:
        self._log = log
        self._place = 0
        self._on_close: Callable[[], None] | None = on_close

    @property
    def model(self) -> str | None:
        """Name of the answering model; known before the first entry."""
        return self._log.model

    async def receive(self) -> RunEvent:
        """Return the next entry. It may be cancelled and called again.

        Raises:
            trio.EndOfChannel: No entries are left.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        while not (entries := self._log.entries(self._place, 1)):
            if self._log.ended:
                raise trio.EndOfChannel
            await self._log.changed.park()
        self._place += 1
        return entries[0]

    def receive_ready(self) -> list[RunEvent]:
        """Return the entries available now, up to a limit."""
        entries = self._log.entries(self._place, _AT_ONCE)
        self._place += len(entries)
        return entries

    async def wait_ended(self) -> RunEnded | Failed:
        """Wait for the last entry and return it, without reading the others."""
        await trio.lowlevel.checkpoint_if_cancelled()
        while not self._log.ended:
            await self._log.changed.park()
        last = self._log.entries(-1)[0]
        assert isinstance(last, RunEnded | Failed)
        return last

    def close(self) -> None:
        """Stop reading; closing twice does nothing."""
        on_close, self._on_close = self._on_close, None
        if on_close is not None:
            on_close()


@attrs.frozen(eq=False)
class Subscribed(Grant):
    """The answer with a subscription to a run, which is closed if nobody receives it.

    Args:
        response: Stored response, finished or not; None if it is stored only at its end.
    """

    subscription: Subscription
    response: StoredResponse | None

    def close(self) -> None:
        self.subscription.close()


class ConversationLock(Grant):
    """A lock on a conversation for one turn.

    Args:
        release: Callback, called once with the conversation's id.
    """

    def __init__(self, conversation: str, release: Callable[[str], None]) -> None:
        self.conversation = conversation
        self._release: Callable[[str], None] | None = release

    def take(self) -> ConversationLock:
        release, self._release = self._release, None
        return ConversationLock(self.conversation, release or (lambda _: None))

    def close(self) -> None:
        """Release the conversation; closing twice does nothing."""
        release, self._release = self._release, None
        if release is not None:
            release(self.conversation)
