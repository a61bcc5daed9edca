"""Control tokens that leak into an answer, where nothing reads them: doubled ends, empty channels, boxes."""

from __future__ import annotations

from typing import Literal

from greenroom.engine.parsers.markers import WHITESPACE
from greenroom.engine.parsers.thinking_parser import ThinkingParser
from greenroom.engine.parsers.tool_call_parser import ToolCallParser
from greenroom.schemas.control_tokens import ControlToken

Role = Literal["read", "opens a thought", "mentioned", "meaningless"]


class StrayTokens:
    """Decides what becomes of the control tokens outside thoughts and calls.

    A token that a format may write and people write about, such as `</think>`, is dropped at the beginning
    and at the end of an answer and before a call, and is text before other text. So is a thought
    behind an answer in which nothing stands. Any other control token means nothing to a reader.

    Attributes:
        held: Text that is dropped unless more of the answer follows.
    """

    def __init__(self, calls: ToolCallParser, thoughts: ThinkingParser) -> None:
        self._calls = calls
        self._thoughts = thoughts
        self._thought_starts = tuple(start for start, _ in thoughts.markers)
        self._thought_ends = tuple(end for _, end in thoughts.markers)
        self._ends = (*self._thought_ends, *(end for _, end in calls.markers))
        self._thought = ""
        self.held = ""

    def feed_token(self, token: ControlToken, *, thought_ended: bool, begun: bool) -> str:
        """Return what the answer goes on with behind the token; the rest of it is dropped or held.

        Args:
            thought_ended: No thought can begin any more.
            begun: Something of the answer is there.
        """
        text = token.text
        if self._thought and text in self._thought_ends and self._is_label(self._thought):
            self._thought = ""
            return ""
        match self._role(token, thought_ended):
            case "read":
                self._thought = self.held = ""
                return text
            case "opens a thought":
                self.held += self._thought
                self._thought = text
            case "mentioned" if begun or self._thought:
                self.held += self._thought + text
                self._thought = ""
        return ""

    def feed(self, text: str) -> str:
        """Return what the answer goes on with: ordinary text, and what is held if that does not end it."""
        if not (self.held or self._thought):
            return text
        if self._thought and self._may_be_label(self._thought + text):
            self._thought += text
            return ""
        self.held += self._thought + text
        self._thought = ""
        if not text.strip(WHITESPACE):
            return ""
        held, self.held = self.held, ""
        return held

    def _role(self, token: ControlToken, thought_ended: bool) -> Role:
        text = token.text
        if thought_ended and self._thought_starts and any(s.startswith(text) for s in self._thought_starts):
            return "opens a thought"
        if self._calls.reads_outside_calls(text) or self._thoughts.reads_outside_thoughts(text):
            return "read"
        return "mentioned" if text in self._ends or not token.silent else "meaningless"

    def _is_label(self, text: str) -> bool:
        return text.rstrip(WHITESPACE) in self._thought_starts

    def _may_be_label(self, text: str) -> bool:
        dense = text.rstrip(WHITESPACE)
        return any(start.startswith(dense) for start in self._thought_starts)
