"""The path of a request through the actors, driven by its owner."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import Any, Literal, Self

import attrs
import trio

from greenroom.actors.core.ref import ActorStopped, Ref
from greenroom.actors.core.reply import ReplyStream
from greenroom.actors.pool.lease_queue import NOT_ANSWERED, NOT_LOADED, Found, Granted, Lease, NameFound
from greenroom.actors.records.tracing import begin_span
from greenroom.schemas.events.events import (
    Admitted,
    Failed,
    Finished,
    InferenceEvent,
    PromptProgress,
    QueueStatus,
    Usage,
)
from greenroom.schemas.events.explanation import Waits
from greenroom.schemas.messages.requests import InferenceRequest
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.problems import Problem, ProblemError, draining, model_crashed
from greenroom.schemas.protocols.model_protocol import Generate, ModelMessage, Prepare
from greenroom.schemas.protocols.pool_protocol import Acquire, PoolMessage

_AWAITED: dict[str, Awaited] = {
    "queued": "slot",
    "waiting_for_model": "model",
    "downloading": "loading",
    "loading": "loading",
}
"""Causes of waiting by the status that the pool reports."""


LOCAL = "local"
"""Name of this machine among those that answer."""


class RequestEvents(ABC):
    """The events of a request: iterate over it for them, and leave its context to end it.

    Attributes:
        request: Request, as the model gets it.
        key: Name of its model, resolved once known.
        backend: Name of the remote that answers; `local` for this machine.
    """

    request: InferenceRequest
    key: ModelKey
    backend: str = LOCAL

    @abstractmethod
    async def receive(self) -> InferenceEvent:
        """Return the next event. It may be cancelled (by a timeout) and called again without losing an event.
        Raises trio.EndOfChannel: the request has ended, with Finished or Failed.
        """

    @abstractmethod
    def receive_ready(self) -> list[InferenceEvent]:
        """Return the events available now."""

    @abstractmethod
    def close(self) -> None:
        """End the request in any phase."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> InferenceEvent:
        try:
            return await self.receive()
        except trio.EndOfChannel:
            raise StopAsyncIteration from None


class Generation(RequestEvents):
    """A request that acquires a model, is prepared, waits for a slot, and generates.

    No task runs it: the request advances while its owner calls `receive`. The model generates meanwhile, and
    events that the owner has not received are merged. All answers arrive on one reply stream, so that waiting
    for a slot and preparing the prompt overlap.

    Args:
        request: Inference request; its `key` may be an alias, which this object's `key` resolves once known.
            A profile keeps its name here, while the request then has the model's.
        limited: True if it fails once it has waited for the setting `queue_timeout`, as requests without
            streaming do.
    """

    def __init__(self, pool: Ref[PoolMessage], request: InferenceRequest, *, limited: bool = False) -> None:
        self._span = begin_span(request)
        if self._span is not None:
            request = attrs.evolve(request, trace=self._span.trace)
        self.request = request
        self.key: ModelKey = request.key
        self._asked = request.key
        self._pool = pool
        self._limited = limited
        self._profile: ModelKey | None = None
        self._replies: ReplyStream[Any] = ReplyStream()
        self._started = time.monotonic()
        self._sent = False
        self._model: Ref[ModelMessage] | None = None
        self._prepared = False
        self._admitted: Admitted | None = None
        self._lease: Lease | None = None
        self._unfinished = request.choices
        self._generating = self._was_admitted = self._has_begun = False
        self._models = DefaultList()
        self._waiting = WaitingTimes()
        self._usage: Usage | None = None

    async def receive(self) -> InferenceEvent:
        while True:
            await self._send_due_messages()
            event = await self._replies.receive()
            if self._passes_over(event):
                continue
            answer = self._accept(event)
            if answer is not None:
                return answer

    def receive_ready(self) -> list[InferenceEvent]:
        """Return the events available now; empty before the model generates."""
        ready = []
        while self._generating:
            try:
                received = self._replies.receive_nowait()
            except trio.WouldBlock:
                break
            if self._passes_over(received):
                break
            event = self._accept(received)
            if event is not None:
                ready.append(event)
        return ready

    def close(self) -> None:
        """End the request in any phase; a running generation stops at the next step."""
        self._replies.close()
        if self._span is not None:
            self._span.end(None, self.key.model)

    def _passes_over(self, event: Any) -> bool:
        """Ask for the next model that the request's name means, if this one has failed before its answer."""
        if not isinstance(event, Failed) or self._has_begun:
            return False
        if self._lease is not None and not self._models.is_route:
            return False
        if not self._models.pass_over(event.problem):
            return False
        self._replies.close()  # with its lease
        self._replies = ReplyStream()
        self._sent = self._prepared = self._generating = False
        self._model = self._admitted = self._lease = None
        self._unfinished = self.request.choices
        return True

    async def _send_due_messages(self) -> None:
        # A cancelled send is withdrawn; a completed one is recorded without a checkpoint in between.
        if self._replies.sender.closed or self._replies.sender.ended:
            return
        try:
            if not self._sent:
                request = self.request
                priority = request.priority + request.key_priority
                asked = request.id, request.choices, request.adapter, request.keep_alive, priority
                tokens = request.overrides.get("max_tokens")
                caller = request.allowed, request.client, tokens, request.may_download
                tried, rest = self._models.tried, (request.adapter_scale, request.stays)
                acquire = Acquire(self._asked, *asked, self._limited, tried, *caller, *rest)
                await self._pool.stream(acquire, self._replies)
                self._sent = True
        except ActorStopped:
            self._replies.sender.fail(draining())
        try:
            await self._send_to_model()
        except ActorStopped:
            self._replies.sender.fail(model_crashed(self.key.model))

    async def _send_to_model(self) -> None:
        if self._model is not None:
            await self._model.stream(Prepare(self.request), self._replies)
            self._model = None
        if self._lease is not None and self._prepared and not self._generating:
            queued = time.monotonic() - self._started
            generate = Generate(self.request, queued, self._waiting.end())
            await self._lease.model.stream(generate, self._replies)
            self._generating = True

    def _accept(self, event: Any) -> InferenceEvent | None:
        match event:
            case NameFound(_, profile, defaults, _, adapter):
                self._models.begin(event)
                self.request = attrs.evolve(self.request, applied=adapter, chosen=event.chosen)
                if profile is not None:
                    self._profile = ModelKey(profile)
                    self.request = attrs.evolve(self.request, defaults=defaults)
                return None
            case Found(key, model, is_here):
                self.key, self._model = self._profile or key, model
                self.request = attrs.evolve(self.request, key=key)
                self.backend = LOCAL if is_here else key.model.partition("/")[0]
                if self._span is not None:
                    self._span.found(is_here=is_here)
                return None
            case Admitted() as admitted:
                self._prepared = True
                if self._span is not None:
                    self._span.admitted()
                if self._models.is_open and self._lease is None:
                    self._admitted = admitted  # another model may count otherwise
                    return None
                return self._admit_once(admitted)
            case QueueStatus(status):
                self._waiting.wait_for(_AWAITED[status])
            case Granted(lease):
                self._lease = lease
                if self._span is not None:
                    self._span.granted()
                self._waiting.wait_for("preparing")
                # The slot is released when the model is done, however slowly the client reads.
                self._replies.sender.watch(lease.close)
                admitted_before, self._admitted = self._admitted, None
                return self._admit_once(admitted_before)
            case Finished() if self._lease is not None:
                self._unfinished -= 1
                self._lease.shrink(max(1, self._unfinished))
                self._record_end(event)
            case Failed():
                self._replies.sender.end()
                self._record_end(event)
        answer: InferenceEvent = event
        self._has_begun = self._has_begun or not isinstance(answer, QueueStatus | PromptProgress)
        return answer

    def _admit_once(self, admitted: Admitted | None) -> Admitted | None:
        """Return the admission, unless that of a model before has been returned."""
        if admitted is None or self._was_admitted:
            return None
        self._was_admitted = True
        return admitted

    def _record_end(self, event: Finished | Failed) -> None:
        if self._span is None:
            return
        if event.usage is not None:
            self._usage = event.usage if self._usage is None else self._usage.plus(event.usage)
        if isinstance(event, Failed) or self._unfinished <= 0:
            self._span.end(event, self.key.model, self._usage)


class DefaultList:
    """The models of the list that could not answer a request.

    Attributes:
        tried: Their own ids.
    """

    def __init__(self) -> None:
        self.tried: tuple[str, ...] = ()
        self._present: NameFound | None = None

    @property
    def is_open(self) -> bool:
        """True if another model may answer, should the present one not load."""
        return self._present is not None and self._present.replaceable

    @property
    def is_route(self) -> bool:
        """True if another may also answer where the present one has failed before its first token."""
        return self._present is not None and bool(self._present.chosen)

    def begin(self, found: NameFound) -> None:
        """Record the model that is tried now."""
        self._present = found

    def pass_over(self, problem: Problem) -> bool:
        """Return whether the next model is to be tried, since the present one has failed with a problem."""
        codes = NOT_ANSWERED if self.is_route else NOT_LOADED
        if self._present is None or not self.is_open or problem.code not in codes:
            return False
        self.tried += (self._present.key.model,)
        self._present = None
        return True


async def acquire_first(pool: Ref[PoolMessage], message: Acquire) -> Granted:
    """Return the grant of a model; of several that its name may mean, that of the first that loads. Raises
    ProblemError: None of them loads, or the pool has stopped.
    """
    models = DefaultList()
    while True:
        try:
            replies = await pool.stream(attrs.evolve(message, without=models.tried))
        except ActorStopped:
            raise ProblemError(draining()) from None
        with replies:
            async for event in replies:
                match event:
                    case NameFound():
                        models.begin(event)
                    case Granted():
                        return event
                    case Failed(problem):
                        if not models.pass_over(problem):
                            raise ProblemError(problem)
                        break
            else:
                raise ProblemError(draining())


Awaited = Literal["loading", "model", "slot", "preparing"]


class WaitingTimes:
    """Sums the seconds of a request's waits. `clock`: clock in seconds, with any origin."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since = clock()
        self._awaited: Awaited | None = None
        self._waits = Waits()

    def wait_for(self, awaited: Awaited) -> None:
        """Begin to wait for something else; time before the first call counts for the first wait."""
        if self._awaited is not None:
            self._add(self._awaited)
        elif awaited == "preparing":  # served at once
            self._add("slot")
        self._awaited = awaited

    def end(self) -> Waits:
        if self._awaited is not None:
            self._add(self._awaited)
        return self._waits

    def _add(self, awaited: Awaited) -> None:
        now = self._clock()
        seconds = getattr(self._waits, awaited) + now - self._since
        self._waits, self._since = attrs.evolve(self._waits, **{awaited: seconds}), now
