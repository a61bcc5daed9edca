"""Log-probabilities of one choice, on their way from its tokens to the text that they write."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from greenroom.engine.sampling.logprobs import Scores
from greenroom.schemas.events import (
    Finished,
    InferenceEvent,
    ReasoningDelta,
    TextDelta,
    Token,
    TokenLogprob,
    ToolCallDelta,
)


class AnswerLogprobs:
    """Holds scores until the text of their tokens is handed out; those of thoughts and calls are dropped.

    Args:
        name: A token by its id.
        top: How many of the likeliest tokens the client wants.
    """

    def __init__(self, name: Callable[[int], Token], top: int) -> None:
        self.top = top
        self._name = name
        self._scores: Scores | None = None
        self._pending: list[TokenLogprob] = []

    def set_scores(self, scores: Scores) -> None:
        """Take what was computed for the token that comes next."""
        self._scores = scores

    def add(self, token: int) -> None:
        """The token has become part of the answer."""
        scores = self._scores
        if scores is None:
            return
        width = len(scores) // 2
        name = self._name
        top = tuple((name(int(scores[1 + width + i])), scores[1 + i]) for i in range(min(self.top, width)))
        self._pending.append(TokenLogprob(name(token), scores[0], top))

    def discard(self) -> None:
        """What was added is no part of the visible answer."""
        self._pending.clear()

    def attach(self, events: Sequence[InferenceEvent]) -> list[InferenceEvent]:
        """The events of the last token, with the scores of the text that is among them."""
        answered = [*events]
        if not self._pending:
            return answered
        for index in reversed(range(len(answered))):
            event = answered[index]
            if isinstance(event, TextDelta):
                answered[index] = TextDelta(event.text, event.index, tuple(self._pending))
                self._pending.clear()
                return answered
        if any(isinstance(event, ReasoningDelta | ToolCallDelta) for event in answered):
            self._pending.clear()
        if answered and isinstance(answered[-1], Finished) and answered[-1].reason in ("stop", "length"):
            self._emit_rest(answered, answered[-1])
        return answered

    def _emit_rest(self, events: list[InferenceEvent], finished: Finished) -> None:
        """Tokens at the end that write nothing are part of the answer, unless a stop string took them."""
        if self._pending and finished.stop is None:
            events.insert(len(events) - 1, TextDelta("", finished.index, tuple(self._pending)))
        self._pending.clear()
