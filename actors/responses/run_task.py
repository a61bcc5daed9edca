"""The task of a run, which waits for its model and the store without blocking others."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import trio

from greenroom.actors.core.ref import Ref, answer_or_failed
from greenroom.actors.requests.generation import RequestEvents
from greenroom.actors.responses.event_log import encode_events
from greenroom.actors.responses.run import Run
from greenroom.actors.store.problems import store_slow
from greenroom.actors.store.tables import StoreMessage, ask_store_or_failed
from greenroom.actors.tools.conversation import start_generation
from greenroom.schemas.events.events import Failed
from greenroom.schemas.logs import get_logger
from greenroom.schemas.problems import Problem, internal_error
from greenroom.schemas.protocols.pool_protocol import PoolMessage
from greenroom.schemas.protocols.responses_protocol import RunEnded, RunOutcome
from greenroom.schemas.protocols.store_protocol import CheckStoring, Committed
from greenroom.schemas.protocols.tools_protocol import ToolsMessage
from greenroom.schemas.stored import StoredResponse

log = get_logger(actor="responses")

STORING = 20.0
"""Time limit in seconds for storing an ended run, at shutdown too; the store's own limit is shorter."""

_SHORT = 1_000  # Maximum number of log entries encoded on the event loop; longer logs are encoded on a thread


class RunTask:
    """The task that generates and stores a run's response."""

    def __init__(
        self,
        run: Run,
        pool: Ref[PoolMessage],
        store: Ref[StoreMessage],
        tools: Ref[ToolsMessage],
        interrupted: Callable[[], Problem],
    ) -> None:
        self._run = run
        self._pool = pool
        self._store = store
        self._tools = tools
        self._interrupted = interrupted

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
        run.log.model = generation.key.model
        run.take(event)
        for event in generation.receive_ready():
            run.take(event)

    async def _begin(self) -> None:
        run = self._run
        # The row may be stored already, so this must not be cancelled. The client waits in any case.
        with trio.move_on_after(STORING, shield=True):
            row = run.snapshot()
            answer = await ask_store_or_failed(
                self._store, lambda tables: tables.responses.begin(row), writes=True
            )
            if isinstance(answer, Failed):
                run.fail(answer.problem)
            else:
                run.row = row

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
