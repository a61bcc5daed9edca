"""Interface of reasoning parsers; the rule of `tool_call_parser.py` applies to them too."""

from __future__ import annotations

from abc import ABC, abstractmethod

from greenroom.engine.parsers.markers import Markers
from greenroom.engine.parsers.parser_events import ReasoningEvent


class ReasoningStream(ABC):
    """Splits one output, as it streams, into reasoning and the text after it. One per request.

    Attributes:
        in_reasoning: True if the next text belongs to the reasoning, as far as is known.
        reasoning_ended: True once no more reasoning can follow: `feed` then returns its text unchanged.
    """

    in_reasoning: bool = False
    reasoning_ended: bool = False

    @abstractmethod
    def feed(self, text: str) -> list[ReasoningEvent]:
        """Return the events that a further piece of text completes."""

    @abstractmethod
    def finish(self) -> list[ReasoningEvent]:
        """Return the remaining events at the end of the text; nothing may be fed afterwards."""


class ReasoningParser(ABC):
    """A format of marked reasoning. Stateless: one instance serves all requests of a model.

    Attributes:
        parser_id: Name in capability records.
        markers: Pairs of markers that open and close the reasoning.
        also_opened_by: Other prompt endings that leave the reasoning open.
        forced_end: Text that ends reasoning over its token budget; by default the end marker on its own line.
        answer_starts: Markers that may precede the visible answer.
    """

    parser_id: str
    markers: Markers = ()
    also_opened_by: tuple[str, ...] = ()
    forced_end: str = ""
    answer_starts: tuple[str, ...] = ()

    def reads_outside_reasoning(self, token: str) -> bool:
        """Return whether this format reads a control token while no reasoning is open."""
        starts = (start for start, _ in self.markers)
        return any(token in text for text in (*starts, *self.also_opened_by, *self.answer_starts))

    def is_opened_by(self, prompt: str) -> bool:
        """Return whether a prompt ends inside reasoning."""
        starts = tuple(start for start, _ in self.markers)
        return bool(starts) and prompt.rstrip().endswith((*starts, *self.also_opened_by))

    @abstractmethod
    def new_stream(self, starts_open: bool = False) -> ReasoningStream:
        """Return a stream for one output.

        Args:
            starts_open: True if the prompt ends inside reasoning that the template has opened.
        """
