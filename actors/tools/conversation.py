"""The loop of tools: generations of a model, with calls of this server's tools in between."""

from __future__ import annotations

from collections import deque
from typing import Any

import attrs
import trio

from greenroom.actors.core.ref import ActorStopped, Ref
from greenroom.actors.core.reply import ReplyStream
from greenroom.actors.records.tracing import begin_span
from greenroom.actors.requests.generation import Generation, RequestEvents
from greenroom.actors.tools.turn import (
    RESULT_TOKENS,
    LoopRules,
    OwnTool,
    Turn,
    answers_to,
    join_ends,
    join_tools,
    result_message,
)
from greenroom.schemas.events.events import (
    Admitted,
    Failed,
    Finished,
    InferenceEvent,
    PromptText,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
)
from greenroom.schemas.events.result_events import (
    ApprovalWanted,
    ServerCall,
    ToolEvent,
    ToolResult,
    ToolsListed,
)
from greenroom.schemas.messages.messages import Message, TextPart, ToolCall
from greenroom.schemas.messages.requests import ChatInput, InferenceRequest
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.problems import draining
from greenroom.schemas.protocols.pool_protocol import DescribeModel, ModelDescriptions, PoolMessage
from greenroom.schemas.protocols.tools_protocol import CallTool, ListTools, ToolLoop, ToolsMessage, ToolSource

_CONTEXT_SHARE = 4  # Fraction of the context that one result may take
_NOT_APPROVED = "The call needs the user's approval, which this protocol cannot ask for."


class ToolConversation(RequestEvents):
    """A request whose model calls tools of this server, driven by its owner as a `Generation` is.

    No lease is held while tools run: each turn is a generation of its own, whose prompt begins with that of
    the turn before. The client's own tools are the client's: a turn that calls them is the last.
    """

    def __init__(
        self,
        pool: Ref[PoolMessage],
        tools: Ref[ToolsMessage],
        request: InferenceRequest,
        loop: ToolLoop,
        *,
        limited: bool = False,
    ) -> None:
        assert isinstance(request.input, ChatInput)
        self._chat = request.input
        self._span = begin_span(request, "invoke_agent")
        if self._span is not None:
            request = attrs.evolve(request, trace=self._span.trace)
        self.request = request
        self.key: ModelKey = request.key
        self.turns = 0
        self._pool, self._tools, self._loop, self._limited = pool, tools, loop, limited
        self._messages: tuple[Message, ...] = self._chat.messages
        self._own: dict[str, OwnTool] = {}
        self._lists: dict[str, ToolsListed] = {}
        self._replies: ReplyStream[Any] = ReplyStream()
        self._unsent: deque[ToolsMessage | DescribeModel] = deque(map(ListTools, loop.sources))
        self._awaited = len(loop.sources)
        self._generation: Generation | None = None
        self._idents = {call.id for message in self._messages for call in message.tool_calls}
        self._turn = Turn({}, 0, self._idents)
        self._results: dict[str, tuple[ToolCall, ToolResult]] = {}
        self._running: dict[str, ToolCall] = {}
        self._rules = LoopRules(self._chat.tool_choice, loop)
        self._shown = 0
        self._asked = self._ended = self._was_admitted = False
        self._room: int | None = None
        self._sees = False
        self._end: Finished | None = None
        self._ready: deque[InferenceEvent] = deque()
        self._held: list[ToolEvent] = []
        if not loop.sources:
            self._begin()

    async def receive(self) -> InferenceEvent:
        while not self._ready:
            if self._ended:
                raise trio.EndOfChannel
            await self._advance()
        return self._ready.popleft()

    def receive_ready(self) -> list[InferenceEvent]:
        while self._generation is not None and (events := self._generation.receive_ready()):
            for event in events:
                self._take(event)
        ready = list(self._ready)
        self._ready.clear()
        return ready

    def close(self) -> None:
        self._replies.close()
        if self._generation is not None:
            self._generation.close()
        if self._span is not None:
            self._span.end(None, self.key.model)

    async def _advance(self) -> None:
        try:
            while self._unsent:
                # A cancelled send is withdrawn; a completed one is recorded without a checkpoint in between.
                message = self._unsent[0]
                if isinstance(message, DescribeModel):
                    await self._pool.stream(message, self._replies)
                else:
                    await self._tools.stream(message, self._replies)
                self._unsent.popleft()
        except ActorStopped:
            self._finish(Failed(draining()))
            return
        if self._awaited:
            self._take_answer(await self._replies.receive())
        elif self._generation is not None:
            self._take(await self._generation.receive())

    def _take_answer(self, answer: Any) -> None:
        """Take a list, a result, or what the pool knows of the model."""
        self._awaited -= 1
        match answer:
            case ToolsListed():
                self._lists[answer.server] = answer
                if len(self._lists) == len(self._loop.sources):
                    self._begin()
            case ToolResult():
                self._take_result(self._running.pop(answer.id), answer)
            case ModelDescriptions(models) if models and (record := models[0].record) is not None:
                self._room = min(RESULT_TOKENS, record.context // _CONTEXT_SHARE)
                self._sees = "image" in record.inputs
            case Failed():  # the model is not there any more, and the reply has ended
                self._finish(answer)
        if not self._awaited and self._generation is None and not self._ended and self._lists_are_complete:
            self._go_on()

    @property
    def _lists_are_complete(self) -> bool:
        return len(self._lists) == len(self._loop.sources)

    def _begin(self) -> None:
        for source in self._loop.sources:
            listed = self._lists[source.label]
            if listed.error or source.label not in self._loop.listed:
                self._emit(listed)
        self._own = join_tools(self._chat.tools, self._loop, self._lists)
        for approved in self._loop.approved:
            names = (name for name, own in self._own.items() if (own.server, own.name) == _place(approved))
            call = ToolCall(approved.id, next(names, ""), approved.arguments)
            self._emit(approved)
            self._start(call)
        if not self._awaited:
            self._begin_turn()

    def _go_on(self) -> None:
        if self._end is not None and (self._turn.shown_calls or self._asked):
            self._finish(attrs.evolve(self._end, reason="tool_calls" if self._turn.shown_calls else "stop"))
        else:
            self._begin_turn()

    def _begin_turn(self) -> None:
        room = self._room or RESULT_TOKENS
        results = {
            ident: result_message(call, result, room=room, sees=self._sees)
            for ident, (call, result) in self._results.items()
        }
        self._messages, self._results = answers_to(self._messages, results), {}
        self.turns += 1
        tools = (*self._chat.tools, *(own.tool for own in self._own.values()))
        chat = attrs.evolve(
            self._chat,
            messages=self._messages,
            tools=tools,
            tool_choice=self._rules.choice(self.turns, self._own),
        )
        ident = self.request.id if self.turns == 1 else f"{self.request.id}-{self.turns}"
        request = attrs.evolve(self.request, id=ident, key=self.key, input=chat)
        self._turn = Turn(self._own, self._shown, self._idents)
        self._generation = Generation(self._pool, request, limited=self._limited and self.turns == 1)

    def _take(self, event: InferenceEvent) -> None:
        assert self._generation is not None
        self.key, self.backend = self._generation.key, self._generation.backend
        match event:
            case Admitted():
                if not self._was_admitted:
                    self._was_admitted = True
                    self._ready += (event, *self._held)
            case TextDelta() | ReasoningDelta():
                self._turn.add(event)
                self._ready.append(event)
            case ToolCallDelta():
                if (shown := self._turn.add(event)) is not None:
                    self._ready.append(shown)
            case Finished():
                self._end_turn(event)
            case Failed(problem) if self.turns > 1 and problem.code == "context_length_exceeded":
                assert self._end is not None
                self._finish(attrs.evolve(self._end, reason="length"))
            case Failed():
                self._finish(event)
            case PromptText():
                pass
            case _:
                self._ready.append(event)

    def _end_turn(self, finished: Finished) -> None:
        assert self._generation is not None
        self._generation.close()
        self._generation = None
        self._end = join_ends(self._end, finished)
        own = self._turn.own_calls if finished.reason == "tool_calls" else []
        limit = self._rules.limit(own, self.turns)
        if not own or limit:
            self._finish(attrs.evolve(self._end, reason="length", limit=limit) if limit else self._end)
            return
        self._shown += self._turn.shown_calls
        self._messages = (*self._messages, self._turn.message())
        for call in own:
            tool = self._own[call.name]
            place = tool.server, tool.name, call.arguments
            if isinstance(tool.target, ToolSource) and tool.target.needs_approval(tool.name):
                if self._loop.asks:
                    self._asked = True
                    self._emit(ApprovalWanted(call.id, *place))
                    continue
                self._emit(ServerCall(call.id, *place))
                self._take_result(call, _refusal(call, _NOT_APPROVED))
                continue
            self._emit(ServerCall(call.id, *place))
            self._start(call)
        if not self._awaited:
            self._go_on()

    def _start(self, call: ToolCall) -> None:
        """Send a call, or refuse it at once."""
        tool = self._own.get(call.name)
        if tool is None:
            self._take_result(call, _refusal(call, "The tool is not offered any more."))
            return
        arguments, fault = self._rules.take(call, tool)
        if fault:
            self._take_result(call, _refusal(call, fault))
            return
        self._running[call.id] = call
        if self._room is None:
            self._room = RESULT_TOKENS
            self._unsent.append(DescribeModel(self.key.model))
            self._awaited += 1
        ident = self.request.id if self.turns < 2 else f"{self.request.id}-{self.turns}"
        self._unsent.append(CallTool(call.id, tool.target, tool.name, arguments, ident, self.request.trace))
        self._awaited += 1

    def _take_result(self, call: ToolCall, result: ToolResult) -> None:
        self._emit(result)
        self._results[call.id] = call, result

    def _emit(self, event: ToolEvent) -> None:
        """Send an event once the first prompt is admitted: until then a problem is the whole answer."""
        if self._was_admitted:
            self._ready.append(event)
        else:
            self._held.append(event)

    def _finish(self, event: Finished | Failed) -> None:
        self._ready.append(event)
        self._ended = True
        if self._span is not None:
            self._span.end(event, self.key.model, event.usage)
        self.close()


def start_generation(
    pool: Ref[PoolMessage],
    tools: Ref[ToolsMessage],
    request: InferenceRequest,
    loop: ToolLoop | None,
    *,
    limited: bool = False,
) -> RequestEvents:
    """Return a request on its way through the actors, with or without tools of this server."""
    if loop is None:
        return Generation(pool, request, limited=limited)
    return ToolConversation(pool, tools, request, loop, limited=limited)


def _place(call: ServerCall) -> tuple[str, str]:
    return call.server, call.name


def _refusal(call: ToolCall, why: str) -> ToolResult:
    return ToolResult(call.id, (TextPart(why),), failed=True)
