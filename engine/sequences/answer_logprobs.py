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
    """Keeps scores until the text of their tokens is emitted; those of thoughts and calls are dropped.

    Args:
        name_token: Returns a token by its id.
        top: How many of the likeliest tokens the client wants.
    """

    def __init__(self, name_token: Callable[[int], Token], top: int) -> None:
        self.top = top
        self._name_token = name_token
        self._scores: Scores | None = None
        self._pending: list[TokenLogprob] = []

    def set_scores(self, scores: Scores) -> None:
        """Set what was computed for the token that comes next."""
        self._scores = scores

    def add(self, token: int) -> None:
        """Name the token that became part of the answer, with its scores."""
        scores = self._scores
        if scores is None:
            return
        width = len(scores) // 2
        name = self._name_token
        top = tuple((name(int(scores[1 + width + i])), scores[1 + i]) for i in range(min(self.top, width)))
        self._pending.append(TokenLogprob(name(token), scores[0], top))

    def discard(self) -> None:
        """Drop what was added: it is no part of the visible answer."""
        self._pending.clear()

    def attach(self, events: Sequence[InferenceEvent]) -> list[InferenceEvent]:
        """Return the events of the last token, with the scores of the text that is among them."""
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
        """Insert scores of tokens at the end that write nothing, unless a stop string swallowed them."""
        if self._pending and finished.stop is None:
            events.insert(len(events) - 1, TextDelta("", finished.index, tuple(self._pending)))
        self._pending.clear()
