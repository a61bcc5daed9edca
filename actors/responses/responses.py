"""The responses actor: generates and stores responses, whether or not anybody reads them.

Each run has a task of its own, which waits for its model and the store without blocking others.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import attrs
import trio

from greenroom.actors.core.ref import Control, Envelope, Inbox, Ref, answer_or_failed
from greenroom.actors.core.reply import Reply
from greenroom.actors.records.audit import AuditBook
from greenroom.actors.requests.generation import RequestEvents
from greenroom.actors.responses.event_log import (
    EventLog,
    Subscribed,
    Subscription,
    decode_events,
    encode_events,
)
from greenroom.actors.responses.run import Run, Runs
from greenroom.actors.store.problems import end_not_stored, store_slow
from greenroom.actors.store.tables import StoreMessage, ask_store, ask_store_or_failed
from greenroom.actors.tools.conversation import start_generation
from greenroom.schemas.events.events import Failed
from greenroom.schemas.logs import get_logger
from greenroom.schemas.problems import Problem, ProblemError, draining, internal_error
from greenroom.schemas.protocols.pool_protocol import Drain, Drained, PoolMessage
from greenroom.schemas.protocols.responses_protocol import (
    AboutOne,
    CancelRun,
    Deleted,
    DeleteRun,
    LockConversation,
    ResponsesMessage,
    Retrieve,
    RunEnded,
    RunOutcome,
    StartRun,
    Subscribe,
)
from greenroom.schemas.protocols.store_protocol import CheckStoring, Committed
from greenroom.schemas.protocols.tools_protocol import ToolsMessage
from greenroom.schemas.stored import UNFINISHED, StoredResponse

log = get_logger(actor="responses")

STORING = 20.0
"""Time limit in seconds for storing an ended run, at shutdown too; the store's own limit is shorter."""

_SHORT = 1_000  # Maximum number of log entries encoded on the event loop; longer logs are encoded on a thread


@attrs.frozen(eq=False)
class RunTask:
    """The task that generates and stores a run's response. `interrupted`: function that returns the problem
    of a run whose task is cancelled from outside.
    """

    _run: Run
    _pool: Ref[PoolMessage]
    _store: Ref[StoreMessage]
    _tools: Ref[ToolsMessage]
    _interrupted: Callable[[], Problem]

    async def execute(self, on_accepted: Callable[[], None]) -> None:
        """Execute the run from start to end. Any error fails only this run."""
        run = self._run
        try:
            with run.scope:
                await self._generate(on_accepted)
        except trio.Cancelled:
            run.fail(self._interrupted())
            raise
        except Exception:
            log.exception("response crashed", request_id=run.message.request.id, response=run.message.id)
            run.fail(internal_error())
        finally:
            with trio.move_on_after(STORING, shield=True):
                await self._finish()
            if not run.log.ended:
                run.end(Failed(store_slow()))

    async def _generate(self, on_accepted: Callable[[], None]) -> None:
        run = self._run
        # A client should not wait for an answer that cannot be stored.
        storing = await answer_or_failed(self._store, CheckStoring(run.message.owner), Committed)
        if isinstance(storing, Failed):
            run.fail(storing.problem)
            return
        message = run.message
        with start_generation(
            self._pool, self._tools, message.request, message.loop, limited=message.limited
        ) as generation:
            if run.message.background:
                with trio.move_on_after(run.message.patience):
                    while not (run.accepted or run.answered):
                        await self._pull(generation)
                if run.refusal is not None and run.answered:
                    return
                await self._begin()
                if run.answered:
                    return
                on_accepted()
            while not run.answered:
                await self._pull(generation)

    async def _pull(self, generation: RequestEvents) -> None:
        run = self._run
        try:
            event = await generation.receive()
        except trio.EndOfChannel:
            event = Failed(internal_error())
        run.log.model, run.log.backend = generation.key.model, generation.backend
        run.take(event)
        for event in generation.receive_ready():
            run.take(event)

    async def _begin(self) -> None:
        run = self._run
        row = run.snapshot()
        # The row may be stored already, so this must not be cancelled. The client waits in any case.
        with trio.move_on_after(STORING, shield=True) as storing:
            answer = await ask_store_or_failed(
                self._store, lambda tables: tables.responses.begin(row), writes=True
            )
            if isinstance(answer, Failed):
                run.fail(answer.problem)
            else:
                run.row = row
        if storing.cancelled_caught:
            run.fail(store_slow())
            with trio.move_on_after(1.0, shield=True):  # it may be stored yet, and goes then
                await ask_store_or_failed(
                    self._store, lambda tables: tables.responses.delete(row.id, row.owner), writes=True
                )

    async def _finish(self) -> None:
        run = self._run
        try:
            refusal = run.refusal
            run.end(await self._stored() if refusal is None else Failed(refusal))
        except Exception:
            log.exception("response crashed", request_id=run.message.request.id, response=run.message.id)
            run.end(Failed(internal_error()))

    async def _stored(self) -> RunEnded:
        run = self._run
        outcome = run.decide()
        response = await self._write_down(outcome)
        answer = await self._commit(response, begun=run.row is not None)
        fields = {"request_id": run.message.request.id, "model": run.log.model, "response": run.message.id}
        if not isinstance(answer, Failed):
            log.info("response stored", status=response.status, background=response.background, **fields)
            return RunEnded(response, outcome.problem)
        # Clients may meanwhile delete its parent or conversation, which is no server error.
        report = log.error if answer.problem.status >= 500 else log.warning
        report("response not stored", problem=answer.problem.code, **fields)
        response = attrs.evolve(
            await self._write_down(run.fail_storing(answer.problem)), conversation=None, parent=None
        )
        if run.row is not None:
            await self._commit(response, begun=True)
        return RunEnded(response, answer.problem)

    async def _write_down(self, outcome: RunOutcome) -> StoredResponse:
        run = self._run
        entries = run.log.entries()

        def write_down() -> StoredResponse:
            response = run.message.write(outcome)
            return (
                attrs.evolve(response, events=encode_events(entries)) if run.message.background else response
            )

        return write_down() if len(entries) <= _SHORT else await trio.to_thread.run_sync(write_down)

    async def _commit(self, response: StoredResponse, *, begun: bool) -> Failed | None:
        return await ask_store_or_failed(
            self._store, lambda tables: tables.responses.commit(response, begun), writes=True
        )


_TICK = 1.0  # Interval in seconds between checks for silent runs


class Responses:
    """The actor that generates and stores responses; a request only subscribes to a run."""

    def __init__(
        self,
        pool: Ref[PoolMessage],
        store: Ref[StoreMessage],
        tools: Ref[ToolsMessage],
        audit: AuditBook | None = None,
    ) -> None:
        self._inbox: Inbox[ResponsesMessage] = Inbox()
        self.ref: Ref[ResponsesMessage] = self._inbox.ref
        self._control: Control[Any] = Control()
        self._pool = pool
        self._store = store
        self._tools = tools
        self._audit = audit
        self._runs = Runs()
        self._nursery: trio.Nursery
        self._interrupted = draining()
        self._draining = False
        self._drain_replies: list[Reply] = []

    async def run(self) -> None:
        """Receive messages until cancelled; runs that are left then fail, and are stored."""
        log.debug("started")
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._inbox.forward, self._control)
                while True:
                    await self._live()
        finally:
            self._control.close(draining())
            self._inbox.fail_unanswered(draining())
            log.debug("stopped")

    async def _live(self) -> None:
        """Receive messages until cancelled, or until an error ends all runs; the actor then restarts."""
        self._runs, self._interrupted = Runs(), draining()
        try:
            async with trio.open_nursery() as self._nursery:
                self._nursery.start_soon(self._clock)
                while True:
                    self._receive(await self._control.receive())
        except Exception:
            log.exception("actor crashed")
            log.info("restarted")

    def _receive(self, received: Envelope[ResponsesMessage] | Callable[[], None]) -> None:
        """Carry out a message, or the change that a run or its reader reports."""
        try:
            if isinstance(received, Envelope):
                self._receive_message(received.message, received.reply or Reply())
            else:
                received()
            self._answer_drain()
        except Exception:
            self._interrupted = _crashed()
            raise

    def _receive_message(self, message: ResponsesMessage, reply: Reply) -> None:
        log.debug("received", message=type(message).__name__)
        try:
            self._answer(message, reply)
        except ProblemError as error:
            reply.fail(error.problem)
        except Exception:
            # Only this message fails; it must not end other runs.
            log.exception("message failed", message=type(message).__name__)
            reply.fail(internal_error())

    def _answer(self, message: ResponsesMessage, reply: Reply) -> None:
        match message:
            case LockConversation() | StartRun() if self._draining:
                reply.fail(draining())
            case LockConversation(owner, conversation):
                reply.send(self._runs.lock(owner, conversation))
            case StartRun():
                self._start(message, reply)
            case Drain():
                self._draining = True
                self._drain_replies.append(reply)
            case _:
                self._answer_of_one(message, self._runs.find(message.owner, message.id), reply)

    def _answer_of_one(self, message: AboutOne, run: Run | None, reply: Reply) -> None:
        if run is None:
            self._nursery.start_soon(self._answer_from_store, message, reply)
            return
        match message:
            case Retrieve():
                reply.send(run.snapshot())
            case Subscribe() | CancelRun() if not run.message.background:
                reply.fail(not_in_background(message))
            case Subscribe():
                self._subscribe(run, reply)
            case CancelRun():
                run.when_ended(lambda event: _tell_end(event, reply))
                run.cancel()
            case DeleteRun():
                run.when_ended(lambda _: self._nursery.start_soon(self._answer_from_store, message, reply))
                run.cancel()

    def _start(self, message: StartRun, reply: Reply) -> None:
        run = Run(message)
        try:
            self._runs.add(run)
        except ProblemError:
            run.release()
            raise
        if message.background:
            run.when_ended(lambda event: _tell_refusal(event, reply))
            reply.watch(lambda: self._control.send(run.give_up))
        else:
            self._subscribe(run, reply)
        if self._audit is not None:
            self._audit.hold(message.request.id, background=message.background)
            run.when_ended(partial(_record_end, self._audit, message.request.id))
        self._nursery.start_soon(self._execute, run, reply)

    async def _execute(self, run: Run, reply: Reply) -> None:
        task = RunTask(run, self._pool, self._store, self._tools, lambda: self._interrupted)
        try:
            await task.execute(lambda: self._control.send(partial(self._subscribe, run, reply)))
        finally:
            self._control.send(partial(self._runs.remove, run))

    def _subscribe(self, run: Run, reply: Reply) -> None:
        run.readers += 1
        subscription = Subscription(run.log, lambda: self._control.send(run.leave))
        reply.send(Subscribed(subscription, run.row))

    async def _answer_from_store(self, message: AboutOne, reply: Reply) -> None:
        try:
            reply.send(await answer_from_store(self._store, message))
        except ProblemError as error:
            reply.fail(error.problem)
        except Exception:
            log.exception("message failed", message=type(message).__name__)
            reply.fail(internal_error())

    async def _clock(self) -> None:
        while True:
            await trio.sleep(_TICK)
            for run in self._runs:
                run.show_life()

    def _answer_drain(self) -> None:
        if self._draining and not self._runs:
            replies, self._drain_replies = self._drain_replies, []
            for reply in replies:
                reply.send(Drained())
                reply.end()


def _record_end(audit: AuditBook, request_id: str, event: RunEnded | Failed) -> None:
    code = "" if event.problem is None else event.problem.code
    stopped = code == "response_cancelled" or (
        isinstance(event, RunEnded) and event.response.status == "cancelled"
    )
    audit.release(request_id, error="" if stopped else code, cancelled=stopped)


def _tell_end(event: RunEnded | Failed, reply: Reply) -> None:
    if isinstance(event, RunEnded):
        reply.send(event.response)
    else:
        reply.fail(event.problem)


def _tell_refusal(event: RunEnded | Failed, reply: Reply) -> None:
    if isinstance(event, Failed):
        reply.fail(event.problem)


def _crashed() -> Problem:
    detail = "What generates stored responses failed and has been restarted; send the request again."
    return Problem(503, "responses_crashed", detail, retry_after=1)


_SHORT_TEXT = 65_536
"""Maximum length, in characters, of events decoded on the event loop; longer text is decoded on a thread."""


async def answer_from_store(
    store: Ref[StoreMessage], message: AboutOne
) -> StoredResponse | Subscribed | Deleted:
    """Return a stored response or a subscription to its events, or delete it. Raises ProblemError: the
    response is unknown, cannot do what the message requests, or cannot be read now.
    """
    if isinstance(message, DeleteRun):
        await ask_store(store, lambda tables: tables.responses.delete(message.id, message.owner), writes=True)
        return Deleted()
    response = await ask_store(store, lambda tables: tables.responses.find(message.id, message.owner))
    match message:
        case Retrieve():
            return response
        case _ if not response.background:
            raise ProblemError(not_in_background(message))
        case _ if response.status in UNFINISHED:
            raise ProblemError(end_not_stored(message.id))
        case CancelRun():
            return response
        case Subscribe():
            return Subscribed(Subscription(await _read_log(response)), response)


def not_in_background(message: AboutOne) -> Problem:
    """Return the 400 for streaming or cancelling a response that is not a background one."""
    asked = "cancelled" if isinstance(message, CancelRun) else "streamed again"
    detail = (
        f"The response '{message.id}' cannot be {asked}: only responses that were created with "
        "`background: true` can."
    )
    return Problem(400, "not_in_background", detail, "response_id")


async def _read_log(response: StoredResponse) -> EventLog:
    text = response.events or "[]"
    entries = (
        decode_events(text)
        if len(text) <= _SHORT_TEXT
        else await trio.to_thread.run_sync(decode_events, text)
    )
    log = EventLog(entries, response.model)
    log.end(RunEnded(response))
    return log
