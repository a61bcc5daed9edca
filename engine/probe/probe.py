"""A probe's questions and the model's answers as data, and the choice of parsers by them."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

import attrs

from greenroom.engine.adapters.round_trip import ParsedTurn, RenderedTurn, read_turn
from greenroom.engine.catalog.model_files import fingerprint
from greenroom.engine.formats.registry import (
    FORMATS,
    REASONING_PARSERS,
    make_reasoning_parser,
    make_tool_parser,
)
from greenroom.engine.loading.load_size import practical_context
from greenroom.engine.parsers.parser import NullToolParser, ReasoningParser, ToolCallParser
from greenroom.schemas.events.events import Finished, InferenceEvent
from greenroom.schemas.messages.generation import Overrides
from greenroom.schemas.messages.messages import ImagePart, Tool
from greenroom.schemas.messages.requests import RequestInput
from greenroom.schemas.models.capabilities import CapabilityRecord, ProbedCapabilities
from greenroom.schemas.settings.settings import Settings

SEED = 1  # Seed of the answers: a probe of the same files finds the same


@attrs.frozen
class Question:
    """A request of a probe.

    Args:
        prompt: Text of the prompt; empty for models without one.
        city: City for which the model should call the weather tool; empty for other questions.
        thinking: Requested state of the reasoning switch; None if there is none.
    """

    input: RequestInput
    overrides: Overrides = attrs.field(factory=dict)
    prompt: str = attrs.field(default="", repr=False)
    city: str = ""
    thinking: bool | None = None


@attrs.frozen
class Answer:
    """The events of the answer to a question, the last of which is its end."""

    question: Question
    events: tuple[InferenceEvent, ...]

    @property
    def raw(self) -> str:
        last = self.events[-1]
        return last.raw if isinstance(last, Finished) else ""

    @property
    def is_whole(self) -> bool:
        """True if the model itself ended the answer."""
        last = self.events[-1]
        return isinstance(last, Finished) and last.reason in ("stop", "tool_calls")


class Probe(Protocol):
    """The questions that find out what one model can do, and the judgement of its answers."""

    @property
    def questions(self) -> tuple[Question, ...]:
        """The questions, to be asked in order."""

    def judge(self, answers: tuple[Answer, ...]) -> ProbedCapabilities:
        """Return the record with the findings of all answers. Raises ProblemError: the answers show that the
        model is unusable.
        """


# Choice of the parsers that read a model's own output.
#
# All parsers read the same raw outputs: those that serve the model first, then all others in the order of
# their registry. Another parser is chosen only if it finds what was asked for in three of four outputs, and
# the model's own does not. Several formats read more than they write, so parsers that would have written the
# same text go first.

SHARE = 0.75  # Fraction of the outputs in which a parser must find what was asked for: three of four

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
    """Return the parser that finds the requested calls; None if no parser does."""

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


def known_capabilities(
    model: str, folder: Path, record: CapabilityRecord, settings: Settings, limit: int | None
) -> ProbedCapabilities:
    """Return the capabilities that follow from a model's files and this machine's memory, before any probe.
    `limit`: bytes that all models may have together; None if unknown.
    """
    kind = record.model_type
    writes, sees, sounds = kind in ("text", "vision"), kind == "vision", kind in ("speech", "transcription")
    return ProbedCapabilities(
        model,
        kind,
        record.family,
        practical_max_tokens=practical_context(folder, record, settings, limit) if writes else None,
        supports_multi_image=record.multi_image if sees else None,
        supports_video=False if sees else None,  # none is served, whatever the model can see
        max_sequence_length=record.context if kind in ("embeddings", "rerank") else None,
        supports_tts=record.speaks if sounds else None,
        supports_stt=record.transcribes if sounds else None,
        files=fingerprint(folder),
    )


_SIDE = 224


def probe_image() -> ImagePart:
    """Return a PNG with a red circle on white, as wide and as high as many models see."""
    from PIL import Image, ImageDraw

    image = Image.new("RGB", (_SIDE, _SIDE), "white")
    ImageDraw.Draw(image).ellipse((_SIDE // 4, _SIDE // 4, _SIDE * 3 // 4, _SIDE * 3 // 4), fill="red")
    written = io.BytesIO()
    image.save(written, "PNG")
    return ImagePart(written.getvalue())
