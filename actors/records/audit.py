"""Rows of the audit, joined from what the server saw of a request and what its models computed."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

import attrs
import trio

from greenroom.actors.core.ref import Ref
from greenroom.actors.store.tables import StoreMessage, ask_store_or_failed
from greenroom.schemas.events.events import Failed, Finished, InferenceEvent
from greenroom.schemas.logs import get_logger
from greenroom.schemas.protocols.model_protocol import RequestEnded
from greenroom.schemas.stored import CALLS, AuditRow, Ending

MAX_TEXT = 200  # Most characters of a route or a model's name: clients choose both
MAX_ROWS = 4_096  # Rows that wait to be written; further ones are counted, and nobody waits for them
REFUSED_SHARE = 10
"""Refusals take at most this part of the queue, so that a flood of them displaces no others."""
MAX_CONTENT = 8_000  # Most characters of a body, and of an answer
MAX_RECENT = 1_024  # Latest rows that readers can follow, written or not

_TIMED_OUT = ("request_timeout", "queue_timeout", "timed_out")


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
        timer: Clock for durations, in seconds.
        content: True if bodies and answers are kept, too.

    Attributes:
        lost: Number of rows that were dropped because too many waited.
        arrived: Event that is set when a row waits to be written.
        position: Number of rows since the start.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.time,
        timer: Callable[[], float] = time.monotonic,
        *,
        content: bool = False,
    ) -> None:
        self.content = content
        self.lost = 0
        self.arrived = trio.Event()
        self.position = 0
        self._clock = clock
        self._timer = timer
        self._waiting: deque[AuditRow] = deque()
        self._recent: deque[AuditRow] = deque(maxlen=MAX_RECENT)
        self._open: dict[str, _Open] = {}
        self._refused = 0

    @property
    def waiting(self) -> int:
        """The number of rows that wait to be written."""
        return len(self._waiting)

    @property
    def in_flight(self) -> int:
        return len(self._open)

    def begin(self, request_id: str, protocol: str, route: str) -> None:
        row = AuditRow(request_id, self._clock(), "", protocol, _bounded(route), "", None, "answered", 0.0)
        self._open[request_id] = _Open(row, self._timer())

    def admit(self, request_id: str, owner: str) -> None:
        """Record whose request it is, for the rows of its calls, which are complete before its own."""
        if (found := self._find(request_id)) is not None:
            found.row = attrs.evolve(found.row, owner=owner)

    def add_body(self, request_id: str, parts: Sequence[bytes]) -> None:
        """Record the beginning of a request's body, if content is kept."""
        if self.content and (found := self._find(request_id)) is not None:
            begun = b"".join(bytes(part[:MAX_CONTENT]) for part in parts[: MAX_CONTENT // 1_000])
            found.row = attrs.evolve(found.row, body=begun.decode(errors="replace")[:MAX_CONTENT])

    def event(self, request_id: str, event: InferenceEvent) -> None:
        """Record the beginning of a model's raw answer, if content is kept."""
        if not (self.content and isinstance(event, Finished)):
            return
        if (found := self._find(request_id)) is not None:
            answer = f"{found.row.answer}\n{event.raw}" if found.row.answer else event.raw
            found.row = attrs.evolve(found.row, answer=_bounded(answer, MAX_CONTENT))

    def hold(self, request_id: str, model: str = "", *, background: bool = False) -> None:
        """Keep a row open for a model or a run, until `release` has been called as often as this."""
        if (found := self._find(request_id)) is not None:
            if model and not found.halves:  # another model may have failed before it has answered
                found.row = attrs.evolve(found.row, error="")
            found.halves += 1
            if model:
                found.row = attrs.evolve(found.row, model=_bounded(model))
            if background:
                found.row = attrs.evolve(found.row, background=True)

    def release(
        self,
        request_id: str,
        ended: RequestEnded | None = None,
        *,
        error: str = "",
        cancelled: bool = False,
        backend: str = "",
        chosen: str = "",
    ) -> None:
        """Record that a model or a run has ended its part. `error`: code of a run's problem; empty if it had
        none; `cancelled`: True if a run was cancelled; `backend`: name of its remote, if any; `chosen`: why a
        route chose its model.
        """
        if (found := self._find(request_id)) is not None:
            found.halves -= 1
            found.was_cancelled |= cancelled
            if ended is not None:
                row = _added(found.row, ended)
                backend, chosen = backend or row.backend, chosen or row.chosen
                found.row = attrs.evolve(row, backend=backend, chosen=chosen)
            if error and not found.row.error:
                found.row = attrs.evolve(found.row, error=_bounded(error))
            self._complete(found)

    def end(
        self,
        request_id: str,
        status: int | None,
        error: str = "",
        *,
        owner: str = "",
        model: str = "",
        cancelled: bool = False,
    ) -> None:
        """Record the end of the HTTP half.

        Args:
            status: Status of the response; None if there was none.
            error: Code of the problem that ended it; empty if none did.
            model: Name of the model in the request; a model's own id takes precedence.
            cancelled: True if the client left before the end of the answer.
        """
        if (found := self._find(request_id)) is not None:
            found.is_closed = True
            found.was_cancelled |= cancelled
            row = found.row
            error, model = _bounded(error) or row.error, row.model or _bounded(model)
            found.row = attrs.evolve(row, status=status, owner=owner, error=error, model=model)
            self._complete(found)

    def drop(self, request_id: str) -> None:
        """Forget a request that needs no row."""
        self._open.pop(request_id, None)

    def refuse(self, request_id: str, protocol: str, path: str, status: int, error: str) -> None:
        """Record a request that was refused before a route."""
        texts = "", protocol, _bounded(path), ""
        self._add(AuditRow(request_id, self._clock(), *texts, status, "refused", 0.0, error=_bounded(error)))

    def add_call(self, request_id: str, call_id: str, tool: str, seconds: float, error: str) -> None:
        """Record a call that a request has made of a tool of this server. `tool`: name of the tool, after
        that of its server and `/`; `error`: code of what went wrong; empty if nothing did.
        """
        owner = "" if (found := self._find(request_id)) is None else found.row.owner
        began = self._clock() - seconds
        ident = f"{request_id.partition('-')[0]}-{call_id}"
        ending: Ending = "failed" if error else "answered"
        texts = owner, CALLS, _bounded(f"CALL {tool}"), ""
        self._add(AuditRow(_bounded(ident), began, *texts, None, ending, seconds, error=error))

    def take(self, count: int) -> tuple[AuditRow, ...]:
        """Remove and return the oldest complete rows."""
        taken = tuple(self._waiting.popleft() for _ in range(min(count, len(self._waiting))))
        self._refused -= sum(row.ending == "refused" for row in taken)
        if not self._waiting:
            self.arrived = trio.Event()
        return taken

    def after(self, position: int) -> tuple[tuple[AuditRow, ...], int]:
        count = min(self.position - position, len(self._recent))
        rows = tuple(self._recent[index] for index in range(len(self._recent) - count, len(self._recent)))
        return rows, self.position

    def _find(self, request_id: str) -> _Open | None:
        return self._open.get(request_id) or self._open.get(request_id.partition("-")[0])

    def _complete(self, found: _Open) -> None:
        if found.is_closed and found.halves <= 0:
            del self._open[found.row.request_id]
            ending = _ending(found.row, found.was_cancelled)
            self._add(attrs.evolve(found.row, ending=ending, seconds=self._timer() - found.began))

    def _add(self, row: AuditRow) -> None:
        self._recent.append(row)
        self.position += 1
        is_refused = row.ending == "refused"
        if len(self._waiting) >= MAX_ROWS or (is_refused and self._refused >= MAX_ROWS // REFUSED_SHARE):
            self.lost += 1
            return
        self._refused += is_refused
        self._waiting.append(row)
        self.arrived.set()


def _added(row: AuditRow, ended: RequestEnded) -> AuditRow:
    timing, usage = ended.timing, ended.usage
    if timing is not None:
        stages = timing.queued, timing.prefill, timing.decode
        # Prompts of one request are computed together: their sums would exceed its time.
        if sum(stages) > row.queue + row.prefill + row.decode:
            row = attrs.evolve(row, queue=stages[0], prefill=stages[1], decode=stages[2])
    return attrs.evolve(
        row,
        prompt_tokens=(row.prompt_tokens or 0) + usage.prompt,
        cached_tokens=(row.cached_tokens or 0) + usage.cached,
        generated_tokens=(row.generated_tokens or 0) + usage.generated,
        error=row.error or _bounded(ended.problem or ""),
    )


def _ending(row: AuditRow, was_cancelled: bool) -> Ending:
    if row.status in (408, 504) or row.error in _TIMED_OUT:
        return "timed_out"
    if row.status is not None and row.status >= 400:
        return "refused" if row.status < 500 else "failed"
    if row.error:
        return "failed"
    return "cancelled" if was_cancelled else "answered"


def _bounded(text: str, most: int = MAX_TEXT) -> str:
    return text[:most].encode("utf-8", "replace").decode()


log = get_logger(actor="audit")

INTERVAL = 0.5  # Seconds between two batches
BATCH = 1_000  # Most rows of a transaction
PATIENCE = 30.0  # Longest time in seconds between attempts while the database takes nothing
LASTING = ("storage_full", "store_busy", "store_hung", "store_unavailable")
"""Problems that pass, so that the same rows are written again."""


class AuditWriter:
    """Writes the rows of the book to the store.

    While the store accepts none, the latest batch is kept and the book's queue fills; once that is full,
    further rows are dropped and counted.

    Args:
        interval: Seconds between two batches; changed only in tests.

    Attributes:
        book: Requests in flight, and the rows that wait.
    """

    def __init__(self, book: AuditBook, store: Ref[StoreMessage], interval: float = INTERVAL) -> None:
        self.book = book
        self._store = store
        self._interval = interval
        self._batch: tuple[AuditRow, ...] = ()
        self._refused = ""
        self._told = 0

    @property
    def waiting(self) -> int:
        return self.book.waiting + len(self._batch)

    async def run(self) -> None:
        pause = self._interval
        while True:
            if not self._batch:
                await self.book.arrived.wait()
            await trio.sleep(pause)
            written = await self._write()
            pause = self._interval if written else min(2 * pause, PATIENCE)
            self._tell_losses()

    async def finish(self, seconds: float) -> None:
        """Write the rows that are left, for at most `seconds`; call it when `run` has ended."""
        with trio.move_on_after(seconds, shield=True):
            while self.waiting and await self._write():
                pass
        if self.waiting:
            log.warning("audit rows lost", rows=self.waiting, reason=self._refused or "the server ends")

    async def _write(self) -> bool:
        """Write a batch; return False if it must be tried again."""
        batch = self._batch = self._batch or self.book.take(BATCH)
        answer = await ask_store_or_failed(self._store, lambda tables: tables.audit.save(batch), writes=True)
        if isinstance(answer, Failed):
            return self._refuse(answer.problem.code, answer.problem.detail)
        if self._refused:
            log.info("audit is written again")
        self._batch, self._refused = (), ""
        return True

    def _refuse(self, code: str, reason: str) -> bool:
        if code != self._refused:
            log.warning("audit not written", problem=code, detail=reason, rows=self.waiting)
        self._refused = code
        if code in LASTING:
            return False
        self.book.lost += len(self._batch)
        self._batch = ()
        return True

    def _tell_losses(self) -> None:
        if self.book.lost > self._told:
            log.warning(
                "audit rows lost", rows=self.book.lost - self._told, reason=self._refused or "overflow"
            )
            self._told = self.book.lost


class ClientLimits(Protocol):
    """Limits of clients, as a meter's follower; a client with a checked key has its id as its name."""

    def begin(self, client: str, request_id: str) -> Callable[[], None]:
        """Count a request as one that waits or runs; return the function to call at its end."""

    def charge(self, client: str, tokens: int) -> None:
        """Charge the tokens of a prompt, and the most that its answers may have. Raises ProblemError: 429:
        the client has used up its tokens.
        """

    def settle(self, client: str, charged: int, used: int) -> None:
        """Return the tokens of a charge that were not used."""


class TokenMeter:
    """Reports the requests of models to its followers, on the event loop."""

    def __init__(self) -> None:
        self._followers: list[ClientLimits] = []

    def follow(self, limits: ClientLimits) -> None:
        """Tell limits, none of whose methods may block, of each request from now on."""
        self._followers.append(limits)

    def begin(self, client: str, request_id: str) -> list[Callable[[], None]]:
        """Record the arrival of a request; return the functions to call at its end."""
        return [limits.begin(client, request_id) for limits in self._followers]

    def charge(self, client: str, tokens: int) -> None:
        """Charge the most tokens that a request may cost, as `ClientLimits.charge` does."""
        for limits in self._followers:
            limits.charge(client, tokens)

    def settle(self, client: str, charged: int, used: int) -> None:
        for limits in self._followers:
            limits.settle(client, charged, used)
