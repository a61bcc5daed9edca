"""An actor that answers for a model of another system: a second implementation of the pool's contract."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import trio

from greenroom.actors.core.ref import Control, Envelope, Inbox, Ref
from greenroom.actors.core.reply import Reply, ReplyStream
from greenroom.actors.pool.lease_queue import Found
from greenroom.actors.requests.generation import Generation
from greenroom.schemas.events.events import Admitted, Failed, Finished, QueueStatus
from greenroom.schemas.messages.requests import InferenceRequest
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.models.lifecycle import ModelState
from greenroom.schemas.problems import Problem, model_crashed
from greenroom.schemas.protocols.model_protocol import (
    FailRequests,
    Generate,
    Load,
    ModelCommand,
    ModelMessage,
    ModelReport,
    Prepare,
    StateChanged,
    Stop,
    Unload,
    Unloaded,
)
from greenroom.schemas.protocols.pool_protocol import PoolMessage, QueryPrompt


@attrs.define
class Elsewhere:
    """The other system, with faults to inject.

    Args:
        pool: Pool of the system that has the model.
        slots: Number of answers that the forwarding actor lets through at once.
        crash: Ids of requests at which the actor raises.
        commands: Names of the commands that the actor received.
    """

    pool: Ref[PoolMessage]
    slots: int = 4
    crash: set[str] = attrs.field(factory=set)
    commands: list[str] = attrs.field(factory=list)


class ForwardingModel:
    """An actor that forwards each request to another system; it takes no memory of its own pool."""

    takes_room = False
    released = True

    def __init__(
        self, key: ModelKey, state: ModelState, report: Callable[[ModelReport], None], other: Elsewhere
    ) -> None:
        self.key, self.slots = key, other.slots
        self._state, self._report, self._other = state, report, other
        self._inbox: Inbox[ModelMessage] = Inbox()
        self.ref: Ref[ModelMessage] = self._inbox.ref
        self._control: Control[Any] = Control()
        self._replies: set[Reply] = set()

    def send(self, command: ModelCommand) -> None:
        self._control.send(command)

    async def run(self) -> None:
        problem = model_crashed(self.key.model)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._inbox.forward, self._control)
                while self._receive(await self._control.receive(), nursery):
                    pass
                nursery.cancel_scope.cancel("stopped")
        finally:
            self._fail(problem)
            self._control.close(problem)

    async def wait_released(self) -> None:
        await trio.lowlevel.checkpoint()

    def _receive(self, received: Any, nursery: trio.Nursery) -> bool:
        if isinstance(received, Envelope):
            nursery.start_soon(self._answer, received.message, received.reply or Reply())
            return True
        self._other.commands.append(type(received).__name__)
        match received:
            case Load():
                self._report(StateChanged(ModelState.LOADING))
                self._report(StateChanged(ModelState.READY))
            case Unload():
                self._report(StateChanged(ModelState.UNLOADING))
                self._report(Unloaded())
            case FailRequests(problem):
                self._fail(problem)
        return not isinstance(received, Stop)

    def _fail(self, problem: Problem) -> None:
        for reply in [*self._replies]:
            reply.fail(problem)

    async def _answer(self, message: ModelMessage, reply: Reply) -> None:
        self._replies.add(reply)
        with trio.CancelScope() as scope:
            reply.watch(scope.cancel)
            if isinstance(message, Generate):
                if message.request.id in self._other.crash:
                    raise RuntimeError("planted crash")
                await self._generate(message.request, reply)
            elif isinstance(message, Prepare):
                await self._prepare(message, reply)
        self._replies.discard(reply)

    async def _prepare(self, message: Prepare, reply: Reply) -> None:
        with await self._other.pool.stream(QueryPrompt(message.request.key)) as replies:
            found = await replies.receive()
            assert isinstance(found, Found)
            answers: ReplyStream[Admitted | Failed]
            with await found.model.stream(message) as answers:
                reply.send(await answers.receive())

    async def _generate(self, request: InferenceRequest, reply: Reply) -> None:
        with Generation(self._other.pool, request) as generation:
            async for event in generation:
                if not isinstance(event, QueueStatus | Admitted):
                    reply.send(event)
                if isinstance(event, Finished | Failed):
                    break
        reply.end()
