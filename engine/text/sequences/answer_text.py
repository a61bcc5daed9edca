"""Text of an answer: detokenized, parsed into events, and ended."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import attrs

from greenroom.engine.text.sequences.output_processor import Detokenizer, Processor
from greenroom.schemas.events.events import Finished, FinishReason, InferenceEvent, TextDelta
from greenroom.schemas.messages.control_tokens import ControlToken

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
        """Text of all tokens before parsing."""
        return "".join(self.pieces)

    def add_token(self, token: int) -> list[InferenceEvent]:
        """Return the events of a token's text."""
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
        """Return events with the appendix, if they end the visible text and there are no tool calls.

        Args:
            index: Index of the choice within the request.
        """
        last = events[-1] if self.appendix and events else None
        ended = isinstance(last, Finished) and last.reason in ("stop", "length")
        if ended and not self.processor.has_tool_calls:
            return [*events[:-1], TextDelta(self.appendix, index), events[-1]]
        return events
