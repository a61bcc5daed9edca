"""Outputs of a sequence: text, log-probabilities and events, and the end of the answer."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Sequence as GenericSequence
from types import MappingProxyType
from typing import Any, Protocol

import attrs
import mlx.core as mx

from greenroom.engine.text.sampler import LogprobScorer, Scores
from greenroom.schemas.events.events import (
    Finished,
    FinishReason,
    InferenceEvent,
    PromptText,
    ReasoningDelta,
    TextDelta,
    Token,
    TokenLogprob,
    ToolCallDelta,
)
from greenroom.schemas.messages.messages import ControlToken
from greenroom.schemas.messages.prepared_input import EchoedPrompt, PreparedPrompt

_NO_TOKENS: Mapping[int, ControlToken] = MappingProxyType({})


@attrs.define(eq=False)
class AnswerText:
    """Conversion of an answer's tokens to text, and of this text to events.

    Args:
        control_tokens: Control tokens by id, whose text may mean nothing to a reader.
        appendix: Text appended to the visible text without being generated, unless the answer ends with
            calls.
        pieces: Text of the tokens so far, before parsing.
    """

    detokenizer: Detokenizer
    processor: Processor
    control_tokens: Mapping[int, ControlToken] = _NO_TOKENS
    appendix: str = ""
    pieces: list[str] = attrs.field(factory=list)

    @property
    def raw(self) -> str:
        return "".join(self.pieces)

    def add_token(self, token: int) -> list[InferenceEvent]:
        self.detokenizer.add_token(token)
        text = self.detokenizer.last_segment
        self.pieces.append(text)
        return list(self.processor.feed(text, 1, self.control_tokens.get(token)))

    def end(
        self, reason: FinishReason, *, ended_by_model: bool = False
    ) -> tuple[list[InferenceEvent], FinishReason]:
        """Return the events of text that was held back, and the finish reason that the text gives.

        Args:
            reason: Reason found from the tokens: a stop string or calls in the text change it.
            ended_by_model: True if the model's own end of turn was the last token.
        """
        processor = self.processor
        events: list[InferenceEvent] = []
        if processor.stopped is None:
            self.detokenizer.finalize()
            if text := self.detokenizer.last_segment:
                self.pieces.append(text)
                events += processor.feed(text, 0)
        events += processor.finish(ended_by_model=ended_by_model)
        if processor.stopped is not None:
            reason = "stop"
        if reason == "stop" and processor.has_tool_calls:
            reason = "tool_calls"
        return events, reason

    def append_appendix(self, events: list[InferenceEvent], index: int) -> list[InferenceEvent]:
        """Return events with the appendix, if they end the visible text and there are no tool calls."""
        last = events[-1] if self.appendix and events else None
        ended = isinstance(last, Finished) and last.reason in ("stop", "length")
        if ended and not self.processor.has_tool_calls:
            return [*events[:-1], TextDelta(self.appendix, index), events[-1]]
        return events


class AnswerLogprobs:
    """Holds token scores until their text is emitted; discards those of reasoning and tool calls.
    `name_token`: function from a token id to its token.
    """

    def __init__(self, name_token: Callable[[int], Token], top: int) -> None:
        self.top = top
        self._name_token = name_token
        self._scores: Scores | None = None
        self._pending: list[TokenLogprob] = []

    def set_scores(self, scores: Scores) -> None:
        self._scores = scores

    def add(self, token: int) -> None:
        scores = self._scores
        if scores is None:
            return
        width = len(scores) // 2
        name = self._name_token
        top = tuple((name(int(scores[1 + width + i])), scores[1 + i]) for i in range(min(self.top, width)))
        self._pending.append(TokenLogprob(name(token), scores[0], top))

    def discard(self) -> None:
        """Discard pending scores: their tokens are not part of the visible answer."""
        self._pending.clear()

    def attach(self, events: Sequence[InferenceEvent], withheld: str = "") -> list[InferenceEvent]:
        """Attach pending scores to the text among the last token's events; return the events. `withheld`:
        visible text held back, which may be the start of a stop string.
        """
        answered = [*events]
        if not self._pending:
            return answered
        finished = answered[-1] if answered and isinstance(answered[-1], Finished) else None
        shown = len(self._pending)
        if finished is not None and finished.stop is not None:
            shown = self._count_before(b"".join(self._written()).find(finished.stop.encode()))
            del self._pending[shown:]
        elif withheld:
            shown = self._count_before(b"".join(self._written()).rfind(withheld.encode()))
        for index in reversed(range(len(answered))):
            event = answered[index]
            if isinstance(event, TextDelta):
                answered[index] = TextDelta(event.text, event.index, tuple(self._pending[:shown]))
                del self._pending[:shown]
                return answered
        if any(isinstance(event, ReasoningDelta | ToolCallDelta) for event in answered):
            self._pending.clear()
        if finished is not None and finished.reason in ("stop", "length"):
            self._emit_rest(answered, finished)
        return answered

    def _written(self) -> Iterator[bytes]:
        return (score.token.bytes for score in self._pending)

    def _count_before(self, end: int) -> int:
        """Return the number of pending tokens that begin before a position in their text, in bytes."""
        count, begin = 0, 0
        for written in self._written():
            if begin >= end:
                break
            count, begin = count + 1, begin + len(written)
        return count

    def _emit_rest(self, events: list[InferenceEvent], finished: Finished) -> None:
        """Emit the scores of final tokens without text, unless a stop string removed them."""
        if self._pending and finished.stop is None:
            events.insert(len(events) - 1, TextDelta("", finished.index, tuple(self._pending)))
        self._pending.clear()


_LOGITS_BYTES = 64 * 1024 * 1024  # Size limit of the logits scored together, in bytes of float32


class PromptLogprobs:
    """Scores the tokens of one prompt, for all choices that continue it.

    The logits of a chunk are reduced on the device to a few numbers per token, which are read later. A prompt
    that is recomputed after preemption is not scored twice.

    Args:
        name_token: Function from a token id to its token.

    Attributes:
        chunk: Maximum number of tokens whose logits may be scored together.
    """

    def __init__(
        self,
        prompt: Sequence[int],
        echo: EchoedPrompt,
        name_token: Callable[[int], Token],
        top: int,
        choices: int,
    ) -> None:
        self.chunk = max(1, _LOGITS_BYTES // (4 * echo.vocabulary))
        self._prompt = prompt
        self._echo = echo
        self._name_token = name_token
        self._top = top
        self._choices = choices
        self._characters = codecs.getincrementaldecoder("utf-8")("replace")
        self._scored = 0
        self._read = 0
        self._launched: list[tuple[int, mx.array]] = []

    @property
    def is_complete(self) -> bool:
        """True once scoring of all tokens but the first is launched."""
        return self._scored >= len(self._prompt) - 1

    def score(self, logits: mx.array, start: int) -> list[mx.array]:
        """Score the tokens that follow those of a chunk; return the arrays to evaluate. `logits`: unevaluated
        logits, `[chunk, vocabulary]`; `start`: position of the chunk's first token.
        """
        end = min(start + logits.shape[0], len(self._prompt) - 1)
        first = max(start, self._scored)
        if first >= end:
            return []
        scorer = LogprobScorer(dict.fromkeys(range(end - first), self._top), end - first)
        targets = mx.array(list(self._prompt[first + 1 : end + 1]))
        scores = scorer.score(scorer.prepare(logits[first - start : end - start]), targets)
        self._launched.append((first + 1, scores))
        self._scored = end
        return [scores]

    def read(self, keep: int = 0) -> list[PromptText]:
        """Return the next scored piece of the prompt for every choice, or nothing. May wait. `keep`: number
        of last chunks to leave unread, since they may be in flight.
        """
        count = len(self._launched) - keep
        ready, self._launched = self._launched[: max(count, 0)], self._launched[max(count, 0) :]
        complete = self.is_complete and not self._launched
        if self._read >= len(self._prompt) or not (ready or complete):
            return []
        first = None if self._read else self._token(0)
        self._read = max(self._read, 1)
        logprobs = tuple(logprob for chunk in ready for logprob in self._named(*chunk))
        tokens = [*([first] if first else []), *(logprob.token for logprob in logprobs)]
        text = "".join(self._characters.decode(token.bytes) for token in tokens)
        if self._read >= len(self._prompt):
            text += self._characters.decode(b"", final=True)
        return [PromptText(text, index, first, logprobs) for index in range(self._choices)]

    def _named(self, start: int, scores: mx.array) -> Iterator[TokenLogprob]:
        rows: Any = scores.tolist()
        for position, row in enumerate(rows, start):
            width = len(row) // 2
            name = self._name_token
            top = tuple((name(int(row[1 + width + i])), row[1 + i]) for i in range(width))
            self._read = position + 1
            yield TokenLogprob(self._token(position), row[0], top)

    def _token(self, position: int) -> Token:
        token, echo = self._name_token(self._prompt[position]), self._echo
        if position < echo.hidden:
            return attrs.evolve(token, bytes=b"")
        if position == echo.hidden and token.bytes.startswith(b" ") and not echo.text.startswith(" "):
            return attrs.evolve(token, bytes=token.bytes[1:])  # SentencePiece adds a leading space to a text.
        return token


class Detokenizer(Protocol):
    """The part of mlx-lm's streaming detokenizers that sequences use."""

    @property
    def last_segment(self) -> str: ...

    def add_token(self, token: int) -> None: ...

    def finalize(self) -> None: ...


class Processor(Protocol):
    @property
    def stopped(self) -> str | None: ...

    @property
    def withheld(self) -> str: ...

    @property
    def has_tool_calls(self) -> bool: ...

    @property
    def in_reasoning(self) -> bool: ...

    @property
    def reasoning_tokens(self) -> int: ...

    @property
    def malformed_calls(self) -> int: ...

    def feed(
        self, text: str, tokens: int = 1, control: ControlToken | None = None
    ) -> GenericSequence[InferenceEvent]: ...

    def finish(self, *, ended_by_model: bool = True) -> GenericSequence[InferenceEvent]: ...


class OutputProcessor(Protocol):
    """The methods of an adapter that turn a sequence's tokens into text and events."""

    def new_detokenizer(self, prepared: PreparedPrompt) -> Detokenizer: ...

    def new_stream_processor(
        self, prepared: PreparedPrompt, new_call_id: Callable[[], str], index: int = 0
    ) -> Processor: ...

    def token(self, ident: int) -> Token: ...
