"""Choice of the parsers that read a model's own output.

All parsers read the same raw outputs: those that serve the model first, then all others in the order of their
registry. Another parser is chosen only if it finds what was asked for in three of four outputs, and the
model's own does not. Several formats read more than they write, so parsers that would have written the same
text go first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial

from greenroom.engine.adapters.detection.rendered_turns import RenderedTurn
from greenroom.engine.adapters.detection.round_trip import ParsedTurn, read_turn
from greenroom.engine.formats.registry import (
    FORMATS,
    REASONING_PARSERS,
    make_reasoning_parser,
    make_tool_parser,
)
from greenroom.engine.parsers.null import NullToolParser
from greenroom.engine.parsers.reasoning_parser import ReasoningParser
from greenroom.engine.parsers.tool_call_parser import ToolCallParser
from greenroom.engine.probe.questions import Answer
from greenroom.schemas.messages.messages import Tool

SHARE = 0.75
"""Fraction of the outputs in which a parser must find what was asked for: three of four."""

WEATHER = Tool(
    "get_weather",
    "Get the current weather in a city",
    {
        "type": "object",
        "properties": {"city": {"type": "string", "description": "Name of the city"}},
        "required": ["city"],
    },
)
"""The tool that the model is asked to call."""

_NO_CALLS = NullToolParser()


def choose_tool_parser(
    own: ToolCallParser, reasoning: ReasoningParser, answers: Sequence[Answer]
) -> ToolCallParser | None:
    """Return the parser that finds the requested calls; None if no parser does.

    Args:
        own: Parser that serves the model.
        reasoning: Parser of the model's reasoning.
        answers: Answers to the questions for the weather.
    """

    def finds(parser: ToolCallParser) -> bool:
        return _in_most(answers, lambda answer: _calls_weather(answer, parser, reasoning))

    if finds(own):
        return own
    others = [make_tool_parser(known.parser_id) for known in FORMATS if known.parser_id != own.parser_id]
    writers = [parser for parser in others if _in_most(answers, partial(_may_be_written_by, parser=parser))]
    return next(filter(finds, (*writers, *others)), None)


def choose_reasoning_parser(own: ReasoningParser, answers: Sequence[Answer]) -> ReasoningParser | None:
    """Return the parser that finds reasoning; None if no parser does.

    The parser that serves the model is kept if it finds any, since a model need not reason about every
    question. Another must find both reasoning and an answer behind it.

    Args:
        own: Parser that serves the model.
        answers: Answers for which reasoning was not switched off.
    """
    if any(reasons(answer, own) for answer in answers):
        return own
    known = (name for name in REASONING_PARSERS if name not in ("null", own.parser_id))
    for parser in map(make_reasoning_parser, known):
        if _in_most(answers, partial(_reasons_and_answers, parser=parser)):
            return parser
    return None


def reasons(answer: Answer, parser: ReasoningParser) -> bool:
    """Return whether a parser finds reasoning in an answer, and an answer behind it unless that was cut off.

    The answer is needed as proof: if the prompt has opened reasoning, an output without an end marker counts
    as reasoning as a whole.
    """
    read = _read(answer, _NO_CALLS, parser)
    return bool(read.reasoning.strip()) and (bool(read.text.strip()) or not answer.is_whole)


def _reasons_and_answers(answer: Answer, parser: ReasoningParser) -> bool:
    read = _read(answer, _NO_CALLS, parser)
    return bool(read.reasoning.strip()) and bool(read.text.strip())


def _calls_weather(answer: Answer, parser: ToolCallParser, reasoning: ReasoningParser) -> bool:
    read = _read(answer, parser, reasoning, (WEATHER,))
    return any(
        name == WEATHER.name and _arguments_of(written) == {"city": answer.question.city}
        for name, written in read.calls
    )


def _may_be_written_by(answer: Answer, parser: ToolCallParser) -> bool:
    """Return whether an output holds the requested call exactly as a format writes it."""
    written = parser.render(WEATHER.name, json.dumps({"city": answer.question.city}))
    return written is not None and written in answer.raw


def _read(
    answer: Answer, parser: ToolCallParser, reasoning: ReasoningParser, tools: tuple[Tool, ...] = ()
) -> ParsedTurn:
    turn = RenderedTurn(answer.question.prompt, answer.raw)
    return read_turn(turn, parser, reasoning, tools, ended_by_model=answer.is_whole)


def _arguments_of(written: str) -> object:
    try:
        return json.loads(written)
    except ValueError:
        return None


def _in_most(answers: Sequence[Answer], finds: Callable[[Answer], bool]) -> bool:
    return bool(answers) and sum(map(finds, answers)) >= SHARE * len(answers)
