"""Log-probabilities of one choice, held until the text of their tokens is emitted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from greenroom.engine.text.sampling.logprobs import Scores
from greenroom.schemas.events.events import (
    Finished,
    InferenceEvent,
    ReasoningDelta,
    TextDelta,
    Token,
    TokenLogprob,
    ToolCallDelta,
)


class AnswerLogprobs:
    """Holds token scores until their text is emitted; discards those of reasoning and tool calls.

    Args:
        name_token: Function from a token id to its token.
        top: Number of top alternatives that the client requested.
    """

    def __init__(self, name_token: Callable[[int], Token], top: int) -> None:
        self.top = top
        self._name_token = name_token
        self._scores: Scores | None = None
        self._pending: list[TokenLogprob] = []

    def set_scores(self, scores: Scores) -> None:
        """Set the scores of the next token."""
        self._scores = scores

    def add(self, token: int) -> None:
        """Add a token of the answer, with the scores set for it."""
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
        """Attach pending scores to the text among the last token's events; return the events.

        Args:
            withheld: Visible text held back, which may be the start of a stop string.
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
