"""News for a client that waits: its place in the queue, or the progress of its prompt."""

from __future__ import annotations

import attrs

from greenroom.http.encoding.json_encoding import json_ascii
from greenroom.schemas.events.events import Admitted, InferenceEvent, PromptProgress, QueueStatus


class WaitingNews:
    """The latest news of one response, which formatters add to the messages that their heartbeats send.

    Attributes:
        fresh: True if there are news that no message has carried yet.
    """

    def __init__(self) -> None:
        self.fresh = False
        self._latest: QueueStatus | PromptProgress | None = None

    @property
    def waits(self) -> bool:
        """True if the request is known to wait for its model."""
        return isinstance(self._latest, QueueStatus)

    def record(self, event: InferenceEvent) -> None:
        """Record an event of the response; the first one of the answer ends the news."""
        if isinstance(event, QueueStatus | PromptProgress):
            self._latest, self.fresh = event, True
        elif self._latest is not None and not isinstance(event, Admitted):
            self._latest, self.fresh = None, False

    def members(self) -> bytes:
        """Return the JSON of the latest news as further members of an object; empty if there are none."""
        self.fresh = False
        return news_members(self._latest)


class TellsNews:
    """Part of a stream formatter whose heartbeats tell a client why it waits."""

    def __init__(self) -> None:
        self._news = WaitingNews()

    @property
    def has_news(self) -> bool:
        return self._news.fresh


def news_members(news: QueueStatus | PromptProgress | None) -> bytes:
    """Return the JSON of news as further members of an object, which begin with a comma.

    The progress has the fields of llama.cpp's server.
    """
    match news:
        case QueueStatus():
            return b',"queue_status":%b' % json_ascii(attrs.asdict(news))
        case PromptProgress(processed, total, cached, seconds):
            numbers = (total, cached, processed, round(seconds * 1e3))
            return b',"prompt_progress":{"total":%d,"cache":%d,"processed":%d,"time_ms":%d}' % numbers
        case None:
            return b""
