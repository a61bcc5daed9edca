"""Readers that follow an actor's news until they leave."""

from __future__ import annotations

from typing import Any

from greenroom.actors.core.reply import Reply
from greenroom.schemas.problems import Problem

MOST_UNREAD = 1_000
"""News that a slow reader may leave unread."""

_SHUT_OUT = Problem(503, "too_slow", "The events came faster than they were read. Follow them anew.")


class Watchers:
    """The replies of those who follow an actor."""

    def __init__(self) -> None:
        self._replies: list[Reply] = []

    @property
    def present(self) -> bool:
        """True if anyone follows; those who have left are forgotten."""
        self._replies = [reply for reply in self._replies if not (reply.closed or reply.ended)]
        return bool(self._replies)

    def add(self, reply: Reply) -> None:
        """Let a reader follow."""
        self._replies.append(reply)

    def tell(self, news: Any) -> None:
        """Send news to all; a reader that is too slow is shut out."""
        for reply in self._replies:
            if reply.unread < MOST_UNREAD:
                reply.send(news)
            else:
                reply.fail(_SHUT_OUT)

    def end(self, problem: Problem) -> None:
        """Tell all that no more will come."""
        replies, self._replies = self._replies, []
        for reply in replies:
            reply.fail(problem)
