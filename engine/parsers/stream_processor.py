"""Single-pass parsing of a model's output into reasoning, tool calls and text up to a stop string."""

from __future__ import annotations

from collections.abc import Callable

from greenroom.engine.parsers.calls_in_reasoning import CallsInReasoning
from greenroom.engine.parsers.leaked_tokens import LeakedTokens
from greenroom.engine.parsers.null import NullReasoningParser, NullToolParser
from greenroom.engine.parsers.parser_events import (
    CallArguments,
    CallEnd,
    CallName,
    ParserEvent,
    PlainText,
    ReasoningEvent,
    ReasoningText,
)
from greenroom.engine.parsers.reasoning_parser import ReasoningParser
from greenroom.engine.parsers.stop_strings import StopStrings
from greenroom.engine.parsers.tool_call_parser import Release, ToolCallParser
from greenroom.schemas.events.events import ReasoningDelta, TextDelta, ToolCallDelta
from greenroom.schemas.messages.control_tokens import ControlToken
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
        reasoning_parser: Parser of the model's reasoning.
        prepared: Prepared prompt: offered tools, stop strings, and whether to parse and whether reasoning is
            open.
        new_call_id: Factory of call ids.
        index: Index of the choice that the deltas belong to.
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
        """Feed a control token, whose text is dropped where no parser reads it."""
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
        """Return the remaining deltas at the end of the output; repeated calls return none.

        Args:
            ended_by_model: True if the model ended its output; False if the output was cut off.
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
        """Emit the rest of the reasoning, and the calls at its end if `may_call`."""
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
