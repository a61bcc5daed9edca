"""An answer that is sent when it is complete, put together from its events, in no protocol's dialect."""

from __future__ import annotations

from collections.abc import Iterable

import attrs
import trio

from greenroom.http.answering.event_stream import Events
from greenroom.schemas.events import (
    Failed,
    Finished,
    InferenceEvent,
    ReasoningDelta,
    TextDelta,
    TokenLogprob,
    ToolCallDelta,
)
from greenroom.schemas.messages import ToolCall
from greenroom.schemas.problems import ProblemError, internal_error


@attrs.frozen
class CollectedChoice:
    """One choice of a complete answer.

    Args:
        logprobs: Of the tokens of its text, if they were asked for.
    """

    text: str
    thought: str
    tool_calls: tuple[ToolCall, ...]
    logprobs: tuple[TokenLogprob, ...]
    finished: Finished


async def collect_choices(
    events: Events, choices: int = 1, received: Iterable[InferenceEvent] = ()
) -> list[CollectedChoice]:
    """Wait until all choices of an answer are complete, and return them.

    Args:
        choices: How many there are.
        received: Events that came before those of `events`.

    Raises:
        ProblemError: The request failed.
    """
    collectors = [ChoiceCollector() for _ in range(choices)]
    ready = list(received)
    while True:
        for event in ready:
            _dispatch(event, collectors)
        if all(collector.finished for collector in collectors):
            return [choice for collector in collectors if (choice := collector.collected())]
        try:
            ready = [await events.receive(), *events.receive_ready()]
        except trio.EndOfChannel:
            raise ProblemError(internal_error()) from None


def _dispatch(event: InferenceEvent, collectors: list[ChoiceCollector]) -> None:
    match event:
        case Failed(problem):
            raise ProblemError(problem)
        case TextDelta() | ReasoningDelta() | ToolCallDelta() | Finished():
            collectors[event.index].add(event)


class ChoiceCollector:
    """Puts one choice together, event by event."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._tool_calls: list[ToolCall] = []
        self._logprobs: list[TokenLogprob] = []
        self.finished: Finished | None = None

    def add(self, event: InferenceEvent) -> None:
        """Add what an event of this choice brings."""
        match event:
            case TextDelta(text, _, logprobs):
                self._texts.append(text)
                self._logprobs += logprobs
            case ReasoningDelta(text):
                self._thoughts.append(text)
            case ToolCallDelta():
                self._add_to_call(event)
            case Finished():
                self.finished = event

    def collected(self) -> CollectedChoice | None:
        """Return the choice if it is complete."""
        if self.finished is None:
            return None
        return CollectedChoice(
            "".join(self._texts),
            "".join(self._thoughts),
            tuple(self._tool_calls),
            tuple(self._logprobs),
            self.finished,
        )

    def _add_to_call(self, delta: ToolCallDelta) -> None:
        if delta.call == len(self._tool_calls):
            self._tool_calls.append(ToolCall(delta.id or "", delta.name or "", ""))
        call = self._tool_calls[delta.call]
        self._tool_calls[delta.call] = attrs.evolve(call, arguments=call.arguments + delta.arguments)
