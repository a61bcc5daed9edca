"""The output half of an adapter, which the engine uses on its own thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from greenroom.engine.adapters.detection.parser_choice import ParserChoice
from greenroom.engine.parsers.answer_or_calls import AnswerOrCalls
from greenroom.engine.parsers.null import NullReasoningParser
from greenroom.engine.parsers.stream_processor import StreamProcessor
from greenroom.engine.parsers.tool_call_parser import Release
from greenroom.engine.tokenizer.tokenizer import ChatTokenizer, Detokenizer
from greenroom.schemas.events.events import Token
from greenroom.schemas.messages.prepared_input import PreparedPrompt

if TYPE_CHECKING:
    from greenroom.engine.grammar.matching.matcher import Matcher


class OutputAdapter:
    """Creates parsers of a model's output; keeps no state between requests.

    Output formats are detected once per load by probing the template. The result is immutable and may be
    shared, unlike the tokenizer.

    Args:
        tokenizer: Copy of the tokenizer that belongs to this adapter's thread.
        choice: Parsers of the model's calls and reasoning, and traits of its template.
    """

    def __init__(self, tokenizer: ChatTokenizer, choice: ParserChoice) -> None:
        self.tokenizer = tokenizer
        self.choice = choice
        self.tool_parser, self.reasoning_parser = choice.tool_parser, choice.reasoning_parser

    def new_stream_processor(
        self, prepared: PreparedPrompt, new_call_id: Callable[[], str], index: int = 0
    ) -> StreamProcessor:
        """Return the stream processor of one choice."""
        tools, reasoning_parser = self.tool_parser, self.reasoning_parser
        release: Release = "validated"
        matcher: Matcher | None = prepared.matcher
        if matcher is not None and matcher.constrains_calls:
            release = "immediate"
        if matcher is not None and matcher.constrains_answer:
            tools = AnswerOrCalls(tools)
            reasoning_parser = reasoning_parser if matcher.allows_reasoning else NullReasoningParser()
        return StreamProcessor(tools, reasoning_parser, prepared, new_call_id, index=index, release=release)

    def new_detokenizer(self, prepared: PreparedPrompt) -> Detokenizer:
        """Return the detokenizer of one choice; only a free answer loses a space of the vocabulary's own."""
        constrained = prepared.matcher is not None and prepared.matcher.constrains_answer
        return self.tokenizer.new_detokenizer(prepared.tokens if constrained or not prepared.parse else ())

    def token(self, ident: int) -> Token:
        """Return one token as shown to clients in log-probabilities."""
        return self.tokenizer.token_names.look_up(ident)
