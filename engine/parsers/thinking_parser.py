"""The interface of parsers of thoughts, under the same rule as that of calls (`tool_call_parser.py`)."""

from __future__ import annotations

from abc import ABC, abstractmethod

from greenroom.engine.parsers.markers import Markers
from greenroom.engine.parsers.parser_events import ThoughtEvent


class ThinkingStream(ABC):
    """Splits one output, as it comes, into the thought and what follows it. One per request.

    Attributes:
        in_thought: What comes next is part of the thought, as far as is known.
        thought_ended: Nothing that may still come is part of a thought: `feed` returns its text unchanged.
    """

    in_thought: bool = False
    thought_ended: bool = False

    @abstractmethod
    def feed(self, text: str) -> list[ThoughtEvent]:
        """Return the events that the next piece decides."""

    @abstractmethod
    def finish(self) -> list[ThoughtEvent]:
        """Return the events that the end of the text decides. Nothing may be fed afterwards."""


class ThinkingParser(ABC):
    """One way of marking thoughts. Stateless: one instance serves all requests of a model.

    Attributes:
        parser_id: Name in capability records (document 000, section 5.2).
        markers: What opens and closes a thought.
        also_opened_by: Further ends of a prompt inside a thought.
        forced_end: What ends a thought whose budget is spent, if not the marker on a line of its own.
        answer_starts: Markers of which one may stand before the visible answer.
    """

    parser_id: str
    markers: Markers = ()
    also_opened_by: tuple[str, ...] = ()
    forced_end: str = ""
    answer_starts: tuple[str, ...] = ()

    def reads_outside_thoughts(self, token: str) -> bool:
        """Return whether a control token means something to this format where no thought is open."""
        starts = (start for start, _ in self.markers)
        return any(token in text for text in (*starts, *self.also_opened_by, *self.answer_starts))

    def is_opened_by(self, prompt: str) -> bool:
        """Return whether a prompt ends inside a thought."""
        starts = tuple(start for start, _ in self.markers)
        return bool(starts) and prompt.rstrip().endswith((*starts, *self.also_opened_by))

    @abstractmethod
    def new_stream(self, starts_open: bool = False) -> ThinkingStream:
        """Return a stream for one output.

        Args:
            starts_open: The prompt ends inside a thought that the template has opened.
        """
