"""Control tokens that leak into an answer: doubled end markers, empty channels, boxes."""

from __future__ import annotations

from typing import Literal

from greenroom.engine.parsers.markers import WHITESPACE
from greenroom.engine.parsers.reasoning_parser import ReasoningParser
from greenroom.engine.parsers.tool_call_parser import ToolCallParser
from greenroom.schemas.messages.control_tokens import ControlToken

Role = Literal["read", "opens a thought", "mentioned", "meaningless"]


class LeakedTokens:
    """Decides which control tokens outside reasoning and calls are dropped, parsed or kept as text.

    Marker tokens that people also write about, such as `</think>`, are dropped at the start and end of an
    answer and before a call, but are text before other text. The same holds for empty reasoning behind an
    answer. Any other control token is dropped.

    Attributes:
        held: Text that is dropped unless more of the answer follows.
    """

    def __init__(self, calls: ToolCallParser, reasoning: ReasoningParser) -> None:
        self._calls = calls
        self._reasoning = reasoning
        self._reasoning_starts = tuple(start for start, _ in reasoning.markers)
        self._reasoning_ends = tuple(end for _, end in reasoning.markers)
        self._ends = (*self._reasoning_ends, *(end for _, end in calls.markers))
        self._opening = ""
        self.held = ""

    def feed_token(self, token: ControlToken, *, reasoning_ended: bool, begun: bool) -> str:
        """Return the text that the answer continues with after a control token; drop or hold back the rest.

        Args:
            reasoning_ended: True if no reasoning can begin any more.
            begun: True if part of the answer has been emitted.
        """
        text = token.text
        if self._opening and text in self._reasoning_ends and self._is_label(self._opening):
            self._opening = ""
            return ""
        match self._role(token, reasoning_ended):
            case "read":
                self._opening = self.held = ""
                return text
            case "opens a thought":
                self.held += self._opening
                self._opening = text
            case "mentioned" if begun or self._opening:
                self.held += self._opening + text
                self._opening = ""
        return ""

    def feed(self, text: str) -> str:
        """Return ordinary text for the answer, preceded by held text if the answer continues."""
        if not (self.held or self._opening):
            return text
        if self._opening and self._may_be_label(self._opening + text):
            self._opening += text
            return ""
        self.held += self._opening + text
        self._opening = ""
        if not text.strip(WHITESPACE):
            return ""
        held, self.held = self.held, ""
        return held

    def _role(self, token: ControlToken, reasoning_ended: bool) -> Role:
        text = token.text
        if (
            reasoning_ended
            and self._reasoning_starts
            and any(s.startswith(text) for s in self._reasoning_starts)
        ):
            return "opens a thought"
        if self._calls.reads_outside_calls(text) or self._reasoning.reads_outside_reasoning(text):
            return "read"
        return "mentioned" if text in self._ends or not token.silent else "meaningless"

    def _is_label(self, text: str) -> bool:
        return text.rstrip(WHITESPACE) in self._reasoning_starts

    def _may_be_label(self, text: str) -> bool:
        dense = text.rstrip(WHITESPACE)
        return any(start.startswith(dense) for start in self._reasoning_starts)
