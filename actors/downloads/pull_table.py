"""The server's running fetches and the latest ended ones, as plain state without any use of Trio."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import attrs

from greenroom.actors.core.reply import MOST_UNREAD, Reply, Watchers
from greenroom.actors.transfers.fetch_model import Wish
from greenroom.schemas.problems import Problem
from greenroom.schemas.protocols.download_protocol import (
    MAX_PULLS,
    DownloadProgress,
    PullCancelled,
    Pulled,
    PullNews,
    Pulls,
    PullStage,
    PullState,
    PullStatus,
    download_cancelled,
    too_many_pulls,
)

_NEWS_SECONDS = 1.0  # Least seconds between two news of a fetch's progress for those who follow all

_KEPT = 50  # Number of ended fetches that are listed


@attrs.define(eq=False)
class Pull:
    """A fetch.

    Args:
        cancel: Function that ends it; set once it runs.
        told: Time, by `time.monotonic()`, of the last progress sent to its readers.
        attached: True if it is cancelled when no client waits any longer.
        probes: True if the model is to be probed afterwards.
    """

    wish: Wish
    id: str = attrs.field(factory=lambda: f"pull-{uuid.uuid4().hex[:12]}")
    started: float = attrs.field(factory=time.time)
    state: PullState = "running"
    progress: DownloadProgress = attrs.field(factory=lambda: DownloadProgress("resolving"))
    ended: float | None = None
    problem: Problem | None = None
    replies: list[Reply] = attrs.field(factory=list)
    cancellers: list[Reply] = attrs.field(factory=list)
    cancel: Callable[[], None] | None = None
    begun: bool = False
    told: float = attrs.field(factory=time.monotonic)
    cancelled: bool = False
    attached: bool = True
    probes: bool = False

    @property
    def status(self) -> PullStatus:
        return PullStatus(
            self.id,
            self.wish.hub_id,
            self.wish.revision,
            self.state,
            self.progress,
            self.started,
            self.ended,
            self.problem,
        )

    def stop(self) -> None:
        self.cancelled = True
        if self.cancel is not None:
            self.cancel()


class PullTable:
    """The fetches of models that run, and the last ones that have ended."""

    def __init__(self) -> None:
        self._pulls: dict[str, Pull] = {}
        self._ended: Counter[PullState] = Counter()
        self._watchers = Watchers()

    def watch(self, reply: Reply) -> None:
        """Let a reader follow all fetches."""
        for pull in self._pulls.values():
            if pull.state == "running":
                reply.send(PullNews("progress", pull.status))
        self._watchers.add(reply)

    def join(self, wish: Wish, reply: Reply, *, attached: bool, probes: bool) -> Pull | Problem:
        """Return the fetch of a wanted model, a new one if none runs, and send its news to the reply."""
        if (pull := self._running(wish)) is None:
            if sum(each.state == "running" for each in self._pulls.values()) >= MAX_PULLS:
                return too_many_pulls()
            pull = Pull(wish)
            self._pulls[pull.id] = pull
            self._tell("started", pull)
        pull.attached &= attached
        pull.probes |= probes
        pull.replies.append(reply)
        reply.send(pull.status)
        return pull

    def is_running(self, hub_id: str) -> bool:
        return any(each.state == "running" and each.wish.hub_id == hub_id for each in self._pulls.values())

    def find(self, ident: str) -> Pull | None:
        return self._pulls.get(ident)

    def leave(self, pull: Pull, reply: Reply) -> None:
        """Record that a reply has closed; an `attached` fetch is cancelled with its last reply."""
        if reply in pull.replies:
            pull.replies.remove(reply)
        if not pull.replies and pull.attached and pull.state == "running":
            pull.stop()

    def note(self, pull: Pull, progress: DownloadProgress) -> None:
        pull.progress = progress
        now = time.monotonic()
        if now - pull.told >= _NEWS_SECONDS:
            pull.told = now
            self._tell("progress", pull)
        for reply in pull.replies:
            if reply.unread < MOST_UNREAD:
                reply.send(pull.status)

    def end(self, pull: Pull, result: Path | Problem | None) -> None:
        """Record the end of a fetch, and send it to its readers. `result`: folder of the model; None if it
        was cancelled.
        """
        pull.ended, pull.cancel = time.time(), None
        stage: PullStage
        match result:
            case Path():
                pull.state = stage = "completed"
                _answer(pull.replies, Pulled(pull.wish.hub_id, str(result)))
            case None:
                pull.state = stage = "cancelled"
                _answer(pull.replies, download_cancelled(pull.wish.hub_id))
            case problem:
                pull.state = stage = "failed"
                pull.problem = problem
                _answer(pull.replies, problem)
        _answer(pull.cancellers, PullCancelled(pull.id))
        self._tell(stage, pull)
        self._ended[pull.state] += 1
        self._forget()

    def listing(self) -> Pulls:
        return Pulls(tuple(pull.status for pull in self._pulls.values()), dict(self._ended))

    def fail_all(self, problem: Problem) -> None:
        for pull in self._pulls.values():
            _answer([*pull.replies, *pull.cancellers], problem)
        self._watchers.end(problem)

    def _tell(self, stage: PullStage, pull: Pull) -> None:
        if self._watchers.present:
            self._watchers.tell(PullNews(stage, pull.status))

    def _running(self, wish: Wish) -> Pull | None:
        return next(
            (
                each
                for each in self._pulls.values()
                if each.wish == wish and each.state == "running" and not each.cancelled
            ),
            None,
        )

    def _forget(self) -> None:
        ended = [ident for ident, pull in self._pulls.items() if pull.state != "running"]
        for ident in ended[:-_KEPT]:
            del self._pulls[ident]


def _answer(replies: list[Reply], answer: Pulled | PullCancelled | Problem) -> None:
    """Answer and end replies; each may remove itself from the list meanwhile."""
    for reply in tuple(replies):
        if isinstance(answer, Problem):
            reply.fail(answer)
        else:
            reply.send(answer)
            reply.end()
    replies.clear()
