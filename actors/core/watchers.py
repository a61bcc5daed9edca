"""Readers that receive an actor's news until they close their streams."""

from __future__ import annotations

from typing import Any

from greenroom.actors.core.reply import Reply
from greenroom.schemas.problems import Problem

MOST_UNREAD = 1_000
"""News that a slow reader may leave unread."""

_SHUT_OUT = Problem(503, "too_slow", "The events came faster than they were read. Follow them anew.")


class Watchers:
    """The replies to all readers that follow an actor."""

    def __init__(self) -> None:
        self._replies: list[Reply] = []

    @property
    def present(self) -> bool:
        """True if a reader is left; readers that have closed their streams are removed."""
        self._replies = [reply for reply in self._replies if not (reply.closed or reply.ended)]
        return bool(self._replies)

    def add(self, reply: Reply) -> None:
        self._replies.append(reply)

    def tell(self, news: Any) -> None:
        """Send news to all readers; the stream of a reader that is too slow ends."""
        for reply in self._replies:
            if reply.unread < MOST_UNREAD:
                reply.send(news)
            else:
                reply.fail(_SHUT_OUT)

    def end(self, problem: Problem) -> None:
        replies, self._replies = self._replies, []
        for reply in replies:
            reply.fail(problem)
