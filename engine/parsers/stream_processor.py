"""Single-pass parsing of a model's output into reasoning, tool calls and text up to a stop string."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Literal

from greenroom.engine.parsers.answer_or_calls import CallsInReasoning
from greenroom.engine.parsers.parser import (
    WHITESPACE,
    CallArguments,
    CallEnd,
    CallName,
    NullReasoningParser,
    NullToolParser,
    ParserEvent,
    PlainText,
    ReasoningEvent,
    ReasoningParser,
    ReasoningText,
    Release,
    ToolCallParser,
)
from greenroom.schemas.events.events import ReasoningDelta, TextDelta, ToolCallDelta
from greenroom.schemas.messages.messages import ControlToken
from greenroom.schemas.messages.prepared_input import PreparedPrompt

Delta = TextDelta | ReasoningDelta | ToolCallDelta


class StreamProcessor:
    """Turns the text of one choice into deltas; one per request and choice, without I/O.

    The joined deltas depend on the whole text only, never on how it was split. Stop strings apply to the
    visible text only and cannot span a call. A call is emitted as two deltas, name and arguments, once its
    block is valid; with `immediate`, as one delta per piece of text. Calls at the end of reasoning that the
    model never closed are emitted too; text that may be such calls is held back until then. Control tokens
    that no parser reads are dropped.

    Args:
        tool_parser: Parser of the model's tool calls; without offered tools, calls are text.
        prepared: Prepared prompt: offered tools, stop strings, and whether to parse and whether reasoning is
            open.
        release: Release mode of calls; `immediate` requires a grammar.

    Attributes:
        tokens: Number of tokens fed.
        reasoning_tokens: Number of reasoning tokens, including markers.
    """

    def __init__(
        self,
        tool_parser: ToolCallParser,
        reasoning_parser: ReasoningParser,
        prepared: PreparedPrompt,
        new_call_id: Callable[[], str],
        *,
        index: int = 0,
        release: Release = "validated",
    ) -> None:
        reads_calls = prepared.parse and (prepared.tools or tool_parser.frames_text)
        calls = tool_parser if reads_calls else NullToolParser()
        reasoning = reasoning_parser if prepared.parse else NullReasoningParser()
        self._calls = calls.new_stream(prepared.tools, release)
        self._calls.reasoning_is_removed = not isinstance(reasoning, NullReasoningParser)
        self._reasoning = reasoning.new_stream(prepared.starts_in_reasoning)
        self._stop = StopStrings(prepared.stop) if prepared.stop else None
        self._new_call_id = new_call_id
        self._index = index
        self._call = -1
        self._open = True  # Closes at the end of the output or at a stop string.
        self._undecided_tokens = 0
        self._begun = False
        self._calls_in_reasoning: CallsInReasoning | None = None
        if prepared.tools and release == "validated" and not isinstance(reasoning, NullReasoningParser):
            self._calls_in_reasoning = CallsInReasoning(calls, prepared.tools)
        self._leaked: LeakedTokens | None = None
        self._parsers = calls, reasoning
        self.tokens = 0
        self.reasoning_tokens = 0

    @property
    def stopped(self) -> str | None:
        """Stop string that ended the answer, if any; no deltas follow it."""
        return self._stop.matched if self._stop is not None else None

    @property
    def withheld(self) -> str:
        """Visible text held back because it may be the start of a stop string."""
        return self._stop.withheld if self._stop is not None else ""

    @property
    def has_tool_calls(self) -> bool:
        return self._call >= 0

    @property
    def malformed_calls(self) -> int:
        """Number of blocks that look like tool calls but were emitted as plain text.

        Includes blocks behind a stop string in the same piece of text.
        """
        return self._calls.malformed_calls

    @property
    def in_reasoning(self) -> bool:
        """True if the next text belongs to the reasoning, as far as is known."""
        return self._reasoning.in_reasoning

    def feed(self, text: str, tokens: int = 1, control: ControlToken | None = None) -> list[Delta]:
        """Return the deltas that a further piece of output completes.

        Args:
            text: Decoded text, which may be empty.
            tokens: Number of tokens decoded to get the text.
            control: Last of these tokens, if it is a control token.
        """
        if control is not None:
            return self._feed_control_token(text, tokens, control)
        if self._leaked is not None:
            text = self._leaked.feed(text)
        self.tokens += tokens
        deltas: list[Delta] = []
        if not self._open or not (text or tokens):
            return deltas
        if self._reasoning.reasoning_ended:
            self._add_answer(deltas, self._calls.feed(text))
            return deltas
        was_in_reasoning = self._reasoning.in_reasoning
        events = self._reasoning.feed(text)
        self._count_tokens(tokens, was_in_reasoning, events)
        self._add_events(deltas, events)
        return deltas

    def _feed_control_token(self, text: str, tokens: int, token: ControlToken) -> list[Delta]:
        if not text.endswith(token.text):
            return self.feed(text, tokens)
        # A detokenizer may hold back text before a token and return it together with the token's own.
        before = text.removesuffix(token.text)
        deltas = self.feed(before, 0) if before else []
        if self._reasoning.in_reasoning or self._calls.in_call:
            return [*deltas, *self.feed(token.text, tokens)]
        leaked = self._leaked = self._leaked or LeakedTokens(*self._parsers)
        read = leaked.feed_token(token, reasoning_ended=self._reasoning.reasoning_ended, begun=self._begun)
        return [*deltas, *self.feed(read, tokens)]

    def finish(self, *, ended_by_model: bool = True) -> list[Delta]:
        """Return the remaining deltas at the end of the output; repeated calls return none. `ended_by_model`:
        True if the model ended its output; False if the output was cut off.
        """
        deltas: list[Delta] = []
        self._calls.cut = not ended_by_model
        if self._open:
            is_reasoning = self._reasoning.in_reasoning
            self._add_events(deltas, self._reasoning.finish())
            self._end_reasoning(deltas, may_call=is_reasoning and ended_by_model)
        if self._open:
            self._add_answer(deltas, self._calls.finish())
        if self._open:
            self._flush_stop_strings(deltas)
        self._open = False
        return deltas

    def _count_tokens(self, tokens: int, was_in_reasoning: bool, events: list[ReasoningEvent]) -> None:
        """Count reasoning tokens; tokens of a partial marker wait until the marker is complete."""
        if (
            was_in_reasoning
            or self._reasoning.in_reasoning
            or any(isinstance(e, ReasoningText) for e in events)
        ):
            self.reasoning_tokens += tokens + self._undecided_tokens
            self._undecided_tokens = 0
        elif events:
            self._undecided_tokens = 0
        else:
            self._undecided_tokens += tokens

    def _add_events(self, deltas: list[Delta], events: list[ReasoningEvent]) -> None:
        for event in events:
            if isinstance(event, ReasoningText):
                text, tail = event.text, self._calls_in_reasoning
                if tail is not None and (tail.is_holding or tail.opening.search(text)):
                    text = tail.feed(text)
                if text:
                    deltas.append(ReasoningDelta(text, self._index))
            else:
                self._end_reasoning(deltas)
                self._add_answer(deltas, self._calls.feed(event.text))

    def _end_reasoning(self, deltas: list[Delta], *, may_call: bool = False) -> None:
        tail = self._calls_in_reasoning
        if tail is None:
            return
        text, calls = tail.finish() if may_call else (tail.release(), [])
        if text:
            deltas.append(ReasoningDelta(text, self._index))
        self._add_answer(deltas, calls)

    def _add_answer(self, deltas: list[Delta], events: list[ParserEvent]) -> None:
        for event in events:
            if not self._open:
                return
            if isinstance(event, PlainText):
                text = event.text
                if self._stop is not None:
                    text = self._stop.feed(text)
                    self._open = self._stop.matched is None
                if text:
                    self._begun = True
                    deltas.append(TextDelta(text, self._index))
                continue
            self._flush_stop_strings(deltas)
            self._add_call(deltas, event)

    def _add_call(self, deltas: list[Delta], event: CallName | CallArguments | CallEnd) -> None:
        match event:
            case CallName(name):
                self._call += 1
                self._begun = True
                deltas.append(ToolCallDelta(self._call, self._new_call_id(), name, "", self._index))
            case CallArguments(fragment):
                deltas.append(ToolCallDelta(self._call, arguments=fragment, index=self._index))
            case CallEnd():
                pass

    def _flush_stop_strings(self, deltas: list[Delta]) -> None:
        withheld = self._stop.flush() if self._stop is not None else ""
        if withheld:
            deltas.append(TextDelta(withheld, self._index))


class StopStrings:
    """Passes text through up to the first stop string.

    The first one is the one completed first, as if characters arrived singly; of two completed at once, the
    longer. Text that may be the start of a stop string is held back.

    Attributes:
        withheld: Text held back, which may be the start of a stop string.
        matched: Stop string that ended the text; None if there is none yet.
    """

    def __init__(self, strings: Sequence[str]) -> None:
        self._strings = tuple(string for string in strings if string)
        self._longest = max(map(len, self._strings), default=0)
        firsts = "".join(re.escape(string[0]) for string in self._strings)
        self._first = re.compile(f"[{firsts}]" if firsts else r"(?!)")
        self.withheld = ""
        self.matched: str | None = None

    def feed(self, text: str) -> str:
        """Return the text up to the first stop string, without a possible start of one at its end."""
        if self.withheld:
            text = self.withheld + text
        ends = [(text.find(string) + len(string), -len(string), string) for string in self._strings]
        found = [end for end in ends if end[0] >= len(end[2])]
        if found:
            end, _, self.matched = min(found)
            self.withheld = ""
            return text[: end - len(self.matched)]
        cut = self._partial_match(text)
        self.withheld = text[cut:]
        return text[:cut]

    def _partial_match(self, text: str) -> int:
        """Return the start of a possible stop string at the end of the text, else the text's length."""
        for first in self._first.finditer(text, max(0, len(text) - self._longest + 1)):
            rest = text[first.start() :]
            if any(string.startswith(rest) for string in self._strings):
                return first.start()
        return len(text)

    def flush(self) -> str:
        withheld, self.withheld = self.withheld, ""
        return withheld


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
