"""An answer that is sent when it is complete, put together from its events, in no protocol's dialect."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs
import trio

from greenroom.http.answering.streaming.event_stream import Events
from greenroom.schemas.events import (
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
from greenroom.schemas.generation import GenerationParameters
from greenroom.schemas.messages import TextPart, ToolCall
from greenroom.schemas.problems import ProblemError, internal_error


@attrs.frozen
class Thought:
    """A part of an answer that precedes what is visible."""

    text: str


AnswerPart = TextPart | Thought | ToolCall


@attrs.frozen
class CollectedChoice:
    """One choice of a complete answer.

    Args:
        parts: In the order in which the model wrote them; no two texts and no two thoughts are neighbors.
        logprobs: Of the tokens of its text, if they were asked for.
        dropped_messages: How many of the oldest messages were left out of the prompt.
        prompt: Its prompt, piece by piece, if the client wants it back.
        parameters: That its model answered with, where that is known.
        system_prompt: The operator's that its conversation began with, empty for none; None if not known.
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
        """All of its visible text."""
        return "".join(part.text for part in self.parts if isinstance(part, TextPart))

    @property
    def thought(self) -> str:
        """All of its thoughts."""
        return "".join(part.text for part in self.parts if isinstance(part, Thought))

    @property
    def shown_tokens(self) -> int:
        """Tokens of its prompt and its text whose log-probabilities it has."""
        return len(self.logprobs) + sum(len(piece.logprobs) for piece in self.prompt)

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """Its calls."""
        return tuple(part for part in self.parts if isinstance(part, ToolCall))


def worded_parts(parts: Iterable[AnswerPart]) -> list[AnswerPart]:
    """Return the parts that have words or call something; thoughts that only white space parted are one.

    Clients send the parts of an answer back, and some protocols take none without text.
    """
    worded: list[AnswerPart] = []
    for part in parts:
        if isinstance(part, TextPart) and not part.text.strip():
            continue
        last = worded[-1] if worded else None
        if isinstance(part, Thought) and isinstance(last, Thought):
            worded[-1] = Thought(last.text + part.text)
        else:
            worded.append(part)
    return worded


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
            collect(event, collectors)
        if all(collector.finished for collector in collectors):
            return [choice for collector in collectors if (choice := collector.collected())]
        try:
            ready = [await events.receive(), *events.receive_ready()]
        except trio.EndOfChannel:
            raise ProblemError(internal_error()) from None


def collect(event: InferenceEvent, collectors: Sequence[ChoiceCollector]) -> None:
    """Add what an event brings to the choice that it is about.

    Raises:
        ProblemError: The request failed.
    """
    match event:
        case Failed(problem):
            raise ProblemError(problem)
        case Admitted():
            for collector in collectors:
                collector.add(event)
        case PromptText() | TextDelta() | ReasoningDelta() | ToolCallDelta() | Finished():
            collectors[event.index].add(event)


class ChoiceCollector:
    """Puts one choice together, event by event."""

    def __init__(self) -> None:
        self._parts: list[_Part] = []
        self._logprobs: list[TokenLogprob] = []
        self._prompt: list[PromptText] = []
        self.finished: Finished | None = None
        self.dropped_messages = 0
        self.parameters: GenerationParameters | None = None
        self.system_prompt: str | None = None

    def add(self, event: InferenceEvent) -> None:
        """Add what an event of this choice brings."""
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
                self._part(Thought("")).pieces.append(text)
            case ToolCallDelta(_, call_id, name, arguments):
                if call_id is not None:
                    self._parts.append(_Part(ToolCall(call_id, name or "", "")))
                self._parts[-1].pieces.append(arguments)
            case Finished():
                self.finished = event

    def collected(self) -> CollectedChoice | None:
        """Return the choice if it is complete."""
        if self.finished is None:
            return None
        parts = tuple(part.whole() for part in self._parts)
        prompt, logprobs = tuple(self._prompt), tuple(self._logprobs)
        return CollectedChoice(
            parts,
            logprobs,
            self.finished,
            self.dropped_messages,
            prompt,
            self.parameters,
            self.system_prompt,
        )

    def _part(self, empty: TextPart | Thought) -> _Part:
        """Return the last part if it is of that kind, else a new one."""
        if not self._parts or type(self._parts[-1].empty) is not type(empty):
            self._parts.append(_Part(empty))
        return self._parts[-1]


@attrs.define
class _Part:
    empty: AnswerPart
    pieces: list[str] = attrs.field(factory=list)

    def whole(self) -> AnswerPart:
        text = "".join(self.pieces)
        if isinstance(self.empty, ToolCall):
            return attrs.evolve(self.empty, arguments=text)
        return attrs.evolve(self.empty, text=text)
