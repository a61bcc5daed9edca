"""One pass over a model's output: thoughts, calls and visible text, up to the stop string (document 000, section 7)."""

from __future__ import annotations

from collections.abc import Callable

from greenroom.engine.parsers.contract import Release, ThinkingParser, ToolCallParser
from greenroom.schemas.events import ReasoningDelta, TextDelta, ToolCallDelta
from greenroom.schemas.requests import PreparedInput

Delta = TextDelta | ReasoningDelta | ToolCallDelta


class StreamProcessor:
    """Turns the text of one choice into deltas. One per request and choice; plain Python, no IO.

    Args:
        tool_parser: Format of the model's calls.
        thinking_parser: Format of the model's thoughts.
        prepared: Tools offered, stop strings, whether to parse at all and whether a thought is open already.
        new_call_id: Makes the id of the next call.
        index: Which choice of the request the deltas belong to.
        release: When calls are handed out; `immediate` only under a grammar.

    Attributes:
        stopped: The stop string that ended the answer, if one did; nothing is returned after it.
        called: At least one call was returned.
        broken_calls: Blocks that were returned as plain text though they look like calls.
        reasoning_tokens: Tokens of the thought, its markers included.
        tokens: All tokens fed.
    """

    def __init__(
        self,
        tool_parser: ToolCallParser,
        thinking_parser: ThinkingParser,
        prepared: PreparedInput,
        new_call_id: Callable[[], str],
        *,
        index: int = 0,
        release: Release = "validated",
    ) -> None:
        self.stopped: str | None = None
        self.called = False
        self.tokens = 0
        self.reasoning_tokens = 0

    @property
    def broken_calls(self) -> int:
        return 0

    @property
    def in_reasoning(self) -> bool:
        """What comes next is part of the thought, as far as is known."""
        return False

    def feed(self, text: str, tokens: int = 1) -> list[Delta]:
        """Take the next piece of output and return what it settled.

        Args:
            tokens: How many tokens were decoded to get this text, which may be empty.
        """
        raise NotImplementedError

    def finish(self) -> list[Delta]:
        """Return what the end of the output settles."""
        raise NotImplementedError
