"""One pass over a model's output: thoughts, calls, and visible text up to a stop string.

Document 000, section 7.
"""

from __future__ import annotations

from collections.abc import Callable

from greenroom.engine.parsers.null import NullThinkingParser, NullToolParser
from greenroom.engine.parsers.parser_events import (
    CallArguments,
    CallEnd,
    CallName,
    ParserEvent,
    PlainText,
    ThoughtEvent,
    ThoughtText,
)
from greenroom.engine.parsers.stop_strings import StopStrings
from greenroom.engine.parsers.thinking_parser import ThinkingParser
from greenroom.engine.parsers.tool_call_parser import Release, ToolCallParser
from greenroom.schemas.events import ReasoningDelta, TextDelta, ToolCallDelta
from greenroom.schemas.prepared_input import PreparedInput

Delta = TextDelta | ReasoningDelta | ToolCallDelta


class StreamProcessor:
    """Turns the text of one choice into deltas. One per request and choice; plain Python, no IO.

    Joined, its deltas are a function of the whole text, wherever it was cut. Stop strings count in the
    visible text only, where they cannot reach across a call. A call is handed out in two deltas, its name
    and its arguments, when its block has proved right; under `immediate`, in as many as its text came in.

    Args:
        tool_parser: Format of the model's calls; without tools on offer they are text.
        thinking_parser: Format of the model's thoughts.
        prepared: Tools offered, stop strings, whether to parse at all and whether a thought is open already.
        new_call_id: Makes the id of the next call.
        index: Which choice of the request the deltas belong to.
        release: When calls are handed out; `immediate` only under a grammar.

    Attributes:
        called: At least one call was returned.
        tokens: All tokens fed.
        reasoning_tokens: Those of the thought, its markers included.
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
        reads_calls = prepared.parse and (prepared.tools or tool_parser.frames_text)
        calls = tool_parser if reads_calls else NullToolParser()
        thoughts = thinking_parser if prepared.parse else NullThinkingParser()
        self._calls = calls.new_stream(prepared.tools, release)
        self._thoughts = thoughts.new_stream(prepared.starts_in_thinking)
        self._stop = StopStrings(prepared.stop) if prepared.stop else None
        self._new_call_id = new_call_id
        self._index = index
        self._call = -1
        self._finished = False
        self._undecided_tokens = 0
        self.tokens = 0
        self.reasoning_tokens = 0

    @property
    def stopped(self) -> str | None:
        """The stop string that ended the answer, if one did; nothing is returned after it."""
        return self._stop.matched if self._stop is not None else None

    @property
    def has_tool_calls(self) -> bool:
        return self._call >= 0

    @property
    def malformed_calls(self) -> int:
        """Blocks that were returned as plain text though they look like calls.

        Those that stand behind a stop string, in the same piece of text, are among them.
        """
        return self._calls.malformed_calls

    @property
    def in_reasoning(self) -> bool:
        """What comes next is part of the thought, as far as is known."""
        return self._thoughts.in_thought

    def feed(self, text: str, tokens: int = 1) -> list[Delta]:
        """Return the deltas that the next piece of output decides.

        Args:
            tokens: How many tokens were decoded to get this text, which may be empty.
        """
        self.tokens += tokens
        deltas: list[Delta] = []
        if not self._is_open or not (text or tokens):
            return deltas
        if self._thoughts.thought_ended:
            self._add_answer(deltas, self._calls.feed(text))
            return deltas
        was_in_thought = self._thoughts.in_thought
        events = self._thoughts.feed(text)
        self._count_tokens(tokens, was_in_thought, events)
        self._add_events(deltas, events)
        return deltas

    def finish(self) -> list[Delta]:
        """Return the deltas that the end of the output decides. Harmless if called again."""
        deltas: list[Delta] = []
        if self._is_open:
            self._add_events(deltas, self._thoughts.finish())
        if self._is_open:
            self._add_answer(deltas, self._calls.finish())
        if self._is_open:
            self._flush_stop_strings(deltas)
        self._finished = True
        return deltas

    @property
    def _is_open(self) -> bool:
        return not self._finished and (self._stop is None or self._stop.matched is None)

    def _count_tokens(self, tokens: int, was_in_thought: bool, events: list[ThoughtEvent]) -> None:
        """Attribute tokens; those of a marker that is still incomplete wait for what it turns out to be."""
        if was_in_thought or self._thoughts.in_thought or any(isinstance(e, ThoughtText) for e in events):
            self.reasoning_tokens += tokens + self._undecided_tokens
            self._undecided_tokens = 0
        elif events:
            self._undecided_tokens = 0
        else:
            self._undecided_tokens += tokens

    def _add_events(self, deltas: list[Delta], events: list[ThoughtEvent]) -> None:
        for event in events:
            if isinstance(event, ThoughtText):
                deltas.append(ReasoningDelta(event.text, self._index))
            else:
                self._add_answer(deltas, self._calls.feed(event.text))

    def _add_answer(self, deltas: list[Delta], events: list[ParserEvent]) -> None:
        for event in events:
            if not self._is_open:
                return
            if isinstance(event, PlainText):
                text = event.text if self._stop is None else self._stop.feed(event.text)
                if text:
                    deltas.append(TextDelta(text, self._index))
                continue
            self._flush_stop_strings(deltas)
            self._add_call(deltas, event)

    def _add_call(self, deltas: list[Delta], event: CallName | CallArguments | CallEnd) -> None:
        match event:
            case CallName(name):
                self._call += 1
                deltas.append(ToolCallDelta(self._call, self._new_call_id(), name, "", self._index))
            case CallArguments(fragment):
                deltas.append(ToolCallDelta(self._call, arguments=fragment, index=self._index))
            case CallEnd():
                pass

    def _flush_stop_strings(self, deltas: list[Delta]) -> None:
        withheld = self._stop.flush() if self._stop is not None else ""
        if withheld:
            deltas.append(TextDelta(withheld, self._index))
