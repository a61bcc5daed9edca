"""Assembly of a complete response from its events, independent of any protocol."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

import attrs
import trio

from greenroom.actors.core.ref import Ref
from greenroom.actors.requests.generation import Generation, RequestEvents
from greenroom.http.answering.current_request import (
    audited_request,
    for_caller,
    request_resources,
    tell_backend,
)
from greenroom.http.answering.event_stream import Events, EventStream, StreamFormatter
from greenroom.schemas.events.events import (
    Admitted,
    Failed,
    Finished,
    InferenceEvent,
    PromptText,
    ReasoningDelta,
    TextDelta,
    TokenLogprob,
    ToolCallDelta,
)
from greenroom.schemas.events.result_events import ApprovalWanted, ServerCall, ToolResult, ToolsListed
from greenroom.schemas.logs import get_logger
from greenroom.schemas.messages.generation import GenerationParameters
from greenroom.schemas.messages.messages import TextPart, ToolCall
from greenroom.schemas.messages.requests import InferenceRequest
from greenroom.schemas.problems import Problem, ProblemError, internal_error
from greenroom.schemas.protocols.pool_protocol import PoolMessage


@attrs.frozen
class Reasoning:
    """A piece of reasoning that precedes visible output."""

    text: str


@attrs.frozen
class CalledTool:
    """A call that the server has made itself. `result`: its result; None if the answer ended before."""

    call: ServerCall
    result: ToolResult | None = None


AnswerPart = TextPart | Reasoning | ToolCall | ToolsListed | CalledTool | ApprovalWanted


@attrs.frozen
class CollectedChoice:
    """One choice of a complete response.

    Args:
        parts: Output in the order in which the model wrote it; adjacent texts are merged, and so is
            reasoning.
        logprobs: Log-probabilities of the tokens of its text, if they were requested.
        dropped_messages: Number of oldest messages that were left out of the prompt.
        system_prompt: Operator's system prompt at the start of its conversation: empty for none, None if
            unknown.
    """

    parts: tuple[AnswerPart, ...]
    logprobs: tuple[TokenLogprob, ...]
    finished: Finished
    dropped_messages: int = 0
    prompt: tuple[PromptText, ...] = ()
    parameters: GenerationParameters | None = None
    system_prompt: str | None = None

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, TextPart))

    @property
    def reasoning(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, Reasoning))

    @property
    def shown_tokens(self) -> int:
        """The number of tokens, of prompt and text, that are listed with log-probabilities."""
        return len(self.logprobs) + sum(len(piece.logprobs) for piece in self.prompt)

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        return tuple(part for part in self.parts if isinstance(part, ToolCall))


def worded_parts(parts: Iterable[AnswerPart]) -> list[AnswerPart]:
    """Return the parts without blank texts, with reasoning merged where only a blank text separated it.

    Clients send the parts back in later requests, and some protocols refuse a text part that is empty.
    """
    worded: list[AnswerPart] = []
    for part in parts:
        if isinstance(part, TextPart) and not part.text.strip():
            continue
        last = worded[-1] if worded else None
        if isinstance(part, Reasoning) and isinstance(last, Reasoning):
            worded[-1] = Reasoning(last.text + part.text)
        else:
            worded.append(part)
    return worded


async def collect_choices(
    events: Events, choices: int = 1, received: Iterable[InferenceEvent] = ()
) -> list[CollectedChoice]:
    """Wait until all choices of a response are complete, and return them. Raises ProblemError: the request
    failed.
    """
    collectors = [ChoiceCollector() for _ in range(choices)]
    ready = list(received)
    while True:
        for event in ready:
            collect(event, collectors)
        if all(collector.finished for collector in collectors):
            return [choice for collector in collectors if (choice := collector.collected())]
        try:
            ready = [await events.receive(), *events.receive_ready()]
        except trio.EndOfChannel:
            raise ProblemError(internal_error()) from None


def collect(event: InferenceEvent, collectors: Sequence[ChoiceCollector]) -> None:
    """Add an event to the choice it belongs to. Raises ProblemError: the request failed."""
    match event:
        case Failed(problem):
            raise ProblemError(problem)
        case Admitted():
            for collector in collectors:
                collector.add(event)
        case ToolsListed() | ServerCall() | ApprovalWanted() | ToolResult():
            collectors[0].add(event)
        case PromptText() | TextDelta() | ReasoningDelta() | ToolCallDelta() | Finished():
            collectors[event.index].add(event)


class ChoiceCollector:
    def __init__(self) -> None:
        self._parts: list[_Part] = []
        self._logprobs: list[TokenLogprob] = []
        self._prompt: list[PromptText] = []
        self.finished: Finished | None = None
        self.dropped_messages = 0
        self.parameters: GenerationParameters | None = None
        self.system_prompt: str | None = None

    def add(self, event: InferenceEvent) -> None:
        match event:
            case Admitted():
                self.dropped_messages, self.parameters = event.dropped_messages, event.parameters
                self.system_prompt = event.system_prompt
            case PromptText():
                self._prompt.append(event)
            case TextDelta(text, _, logprobs):
                self._part(TextPart("")).pieces.append(text)
                self._logprobs += logprobs
            case ReasoningDelta(text):
                self._part(Reasoning("")).pieces.append(text)
            case ToolCallDelta(_, call_id, name, arguments):
                if call_id is not None:
                    self._parts.append(_Part(ToolCall(call_id, name or "", "")))
                self._parts[-1].pieces.append(arguments)
            case ToolsListed() | ApprovalWanted():
                self._parts.append(_Part(event))
            case ServerCall():
                self._parts.append(_Part(CalledTool(event)))
            case ToolResult():
                for part in self._parts:
                    if isinstance(part.empty, CalledTool) and part.empty.call.id == event.id:
                        part.empty = CalledTool(part.empty.call, event)
            case Finished():
                self.finished = event

    def collected(self) -> CollectedChoice | None:
        """Return the choice if it is complete."""
        if self.finished is None:
            return None
        parts = tuple(part.whole() for part in self._parts)
        prompt, logprobs = tuple(self._prompt), tuple(self._logprobs)
        return CollectedChoice(
            parts, logprobs, self.finished, self.dropped_messages, prompt, self.parameters, self.system_prompt
        )

    def _part(self, empty: TextPart | Reasoning) -> _Part:
        """Return the last part if it has that type, else append an empty one and return it."""
        if not self._parts or type(self._parts[-1].empty) is not type(empty):
            self._parts.append(_Part(empty))
        return self._parts[-1]


@attrs.define
class _Part:
    empty: AnswerPart
    pieces: list[str] = attrs.field(factory=list)

    def whole(self) -> AnswerPart:
        text = "".join(self.pieces)
        match self.empty:
            case ToolCall():
                return attrs.evolve(self.empty, arguments=text)
            case TextPart() | Reasoning():
                return attrs.evolve(self.empty, text=text)
            case made:
                return made


E = TypeVar("E")


@attrs.frozen
class Results(Generic[E]):
    """Result events of one request."""

    model: str
    events: tuple[E, ...]
    finished: Finished


async def collect_results(pool: Ref[PoolMessage], request: InferenceRequest, *kinds: type[E]) -> Results[E]:
    """Run a request, and return its events of the given types; it is cancelled when the HTTP request ends.
    Raises ProblemError: the request was refused, or failed.
    """
    if (audited := audited_request()) is not None:
        audited.model = request.key.model
    generation = request_resources().enter_context(Generation(pool, for_caller(request), limited=True))
    found: list[E] = []
    while True:
        try:
            ready = [await generation.receive(), *generation.receive_ready()]
        except trio.EndOfChannel:
            raise ProblemError(internal_error()) from None
        for event in ready:
            if isinstance(event, Failed):
                raise ProblemError(event.problem)
            if isinstance(event, Finished):
                tell_backend(generation.backend)
                return Results(generation.key.model, tuple(found), event)
            if isinstance(event, kinds):
                found.append(event)


log = get_logger(actor="http")


@attrs.frozen
class OnComplete:
    """A step to run once a response is complete, such as storing it, before the client gets the last bytes.

    Args:
        run: Function of the model's name and the response's choices; returns a problem if the step failed.
        last_bytes: Last bytes of a stream, which are sent once the step has succeeded.
    """

    run: Callable[[str, Sequence[CollectedChoice]], Awaitable[Problem | None]]
    last_bytes: bytes = b""


class CompletedEventStream(EventStream):
    """The body of a streamed response: tokens are sent at once, the last bytes after the final step."""

    def __init__(
        self,
        generation: RequestEvents,
        formatter: StreamFormatter,
        received: Iterable[InferenceEvent],
        on_complete: OnComplete,
    ) -> None:
        super().__init__(generation, formatter, received)
        self._collectors = [ChoiceCollector() for _ in range(generation.request.choices)]
        self._model = generation.key.model
        self._on_complete = on_complete
        self._pending: list[CollectedChoice] | None = None
        self._closed = False

    async def __anext__(self) -> bytes:
        if self._pending is not None:
            return await self._close(self._pending)
        piece = await super().__anext__()
        if not self._closed and self._formatter.finished:
            choices = [choice for collector in self._collectors if (choice := collector.collected())]
            if len(choices) == len(self._collectors):
                self._pending = choices
                # An empty piece would end the body.
                return piece.removesuffix(self._on_complete.last_bytes) or await self._close(choices)
        return piece

    async def format(self, events: Sequence[InferenceEvent]) -> bytes:
        for event in events:
            if not isinstance(event, Failed):
                collect(event, self._collectors)
        return await super().format(events)

    async def _close(self, choices: Sequence[CollectedChoice]) -> bytes:
        self._pending, self._closed = None, True
        try:
            problem = await self._on_complete.run(self._model, choices)
        except Exception:
            log.exception("recording crashed")
            problem = internal_error()
        if problem is None:
            return self._on_complete.last_bytes
        self._record(problem)
        return self._formatter.failure(problem)


STEPS = "greenroom_steps"  # Member with the steps, in a complete message and in deltas; SDKs ignore it


def step_of(event: InferenceEvent) -> dict[str, Any] | None:
    """Return the step of an event; None for an event that is none."""
    match event:
        case ToolsListed(server, tools, error):
            names = [tool.name for tool in tools]
            return {"type": "tools_listed", "server": server, "tools": names, "error": error or None}
        case ServerCall(ident, server, name, arguments):
            step = {"type": "call", "id": ident, "server": server, "name": name}
            return {**step, "arguments": arguments}
        case ToolResult(ident, _, failed, seconds):
            return {"type": "result", "id": ident, "output": event.text, "failed": failed, "seconds": seconds}
    return None


def steps_of(parts: Iterable[AnswerPart]) -> tuple[dict[str, Any], ...]:
    events: list[Any] = []
    for part in parts:
        if isinstance(part, ToolsListed):
            events.append(part)
        elif isinstance(part, CalledTool):
            events += [part.call] if part.result is None else [part.call, part.result]
    return tuple(step for event in events if (step := step_of(event)) is not None)
