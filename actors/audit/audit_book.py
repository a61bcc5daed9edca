"""The audit's join of both halves of a request: what the server saw of it, and what its models computed."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

import attrs

from greenroom.schemas.audit import AuditRow, Ending
from greenroom.schemas.protocols.model_protocol import RequestEnded

MAX_TEXT = 200
"""Most characters of a route or a model's name: clients choose both."""
MAX_ROWS = 4_096
"""Rows that wait to be written; further ones are counted, and nobody waits for them."""
REFUSED_SHARE = 4
"""Refusals without a route take at most this part of the queue, so that a flood displaces no others."""


@attrs.define(eq=False)
class _Open:
    row: AuditRow
    began: float
    halves: int = 0
    is_closed: bool = False
    was_cancelled: bool = False


class AuditBook:
    """The requests in flight and the rows of ended ones, on the event loop only.

    A request's row is complete once its HTTP half has ended and no model or run still works for it.

    Args:
        clock: Clock with Unix time in seconds.

    Attributes:
        rows: Complete rows that wait to be written, the oldest first.
        lost: Number of rows that found no place.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.rows: deque[AuditRow] = deque()
        self.lost = 0
        self._clock = clock
        self._open: dict[str, _Open] = {}
        self._refused = 0

    def begin(self, request_id: str, owner: str, protocol: str, route: str) -> None:
        """Open the row of a request."""
        began = self._clock()
        row = AuditRow(request_id, began, owner, protocol, _bounded(route), "", None, "answered", 0.0)
        self._open[request_id] = _Open(row, began)

    def hold(self, request_id: str, model: str = "", *, background: bool = False) -> None:
        """Keep a row open for a model or a run, until as many calls of `release`."""
        if (found := self._open.get(request_id)) is not None:
            found.halves += 1
            row = found.row
            kept = {"model": _bounded(model) or row.model, "background": row.background or background}
            found.row = attrs.evolve(row, **kept)

    def release(self, request_id: str, ended: RequestEnded | None = None) -> None:
        """Record that a model or a run has ended its part, with what the model computed."""
        if (found := self._open.get(request_id)) is not None:
            found.halves -= 1
            if ended is not None:
                found.row = _added(found.row, ended)
                found.was_cancelled |= ended.reason == "cancelled"
            self._complete(request_id, found)

    def end(self, request_id: str, status: int | None, error: str = "", *, cancelled: bool = False) -> None:
        """Record the end of the HTTP half; `cancelled` if its client left before the end of the answer."""
        if (found := self._open.get(request_id)) is not None:
            found.is_closed = True
            found.was_cancelled |= cancelled
            found.row = attrs.evolve(found.row, status=status, error=_bounded(error) or found.row.error)
            self._complete(request_id, found)

    def refuse(self, request_id: str, protocol: str, path: str, status: int, error: str) -> None:
        """Record a request that was refused before a route."""
        if self._refused >= MAX_ROWS // REFUSED_SHARE:
            self.lost += 1
            return
        self._refused += 1
        texts = "", protocol, _bounded(path), ""
        row = AuditRow(request_id, self._clock(), *texts, status, "refused", 0.0, error=_bounded(error))
        self._add(row)

    def take(self, count: int) -> tuple[AuditRow, ...]:
        """Remove and return the oldest complete rows."""
        taken = tuple(self.rows.popleft() for _ in range(min(count, len(self.rows))))
        if not self.rows:
            self._refused = 0
        return taken

    def _complete(self, request_id: str, found: _Open) -> None:
        if found.is_closed and found.halves <= 0:
            del self._open[request_id]
            ending = _ending(found.row, found.was_cancelled)
            self._add(attrs.evolve(found.row, ending=ending, seconds=self._clock() - found.began))

    def _add(self, row: AuditRow) -> None:
        if len(self.rows) < MAX_ROWS:
            self.rows.append(row)
        else:
            self.lost += 1


def _added(row: AuditRow, ended: RequestEnded) -> AuditRow:
    timing, usage = ended.timing, ended.usage
    if timing is not None:
        queue, prefill = max(row.queue, timing.queued), max(row.prefill, timing.prefill)
        row = attrs.evolve(row, queue=queue, prefill=prefill, decode=max(row.decode, timing.decode))
    return attrs.evolve(
        row,
        prompt_tokens=(row.prompt_tokens or 0) + usage.prompt,
        cached_tokens=(row.cached_tokens or 0) + usage.cached,
        generated_tokens=(row.generated_tokens or 0) + usage.generated,
        error=row.error or _bounded(ended.problem or ""),
    )


def _ending(row: AuditRow, was_cancelled: bool) -> Ending:
    if row.status in (408, 504) or row.error in ("request_timeout", "timed_out"):
        return "timed_out"
    if was_cancelled:
        return "cancelled"
    if row.error or (row.status is not None and row.status >= 400):
        return "refused" if row.status is not None and 400 <= row.status < 500 else "failed"
    return "answered"


def _bounded(text: str) -> str:
    return text[:MAX_TEXT].encode("utf-8", "replace").decode()
