"""Choice of a model's parsers, and of who describes tools and writes past calls: template or server.

Sources in order: the model's record, a round trip through its template with parsers of ours and then by the
response template that its tokenizer ships, markers in the template, its family.
A prompt must use one format only: if no parser reads the calls that a template writes, the template gets
neither tools nor calls, but text.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Literal

import attrs

from greenroom.engine.adapters.conversation import FALLBACK_FORMAT
from greenroom.engine.adapters.round_trip import (
    TOOLS,
    FoundToolParser,
    RenderedTurn,
    RenderedTurns,
    find_reader,
    find_reasoning_parser,
    find_tool_parser,
    read_turn,
)
from greenroom.engine.adapters.template_probe import TemplateTraits, with_calls_as_text
from greenroom.engine.catalog.families import FamilyTraits
from greenroom.engine.formats.registry import (
    described_tool_parser,
    detect_reasoning_parser,
    detect_tool_parser,
    make_reasoning_parser,
    make_tool_parser,
)
from greenroom.engine.formats.response_regions import PatternBudget
from greenroom.engine.formats.response_template import ResponseTemplateParser
from greenroom.engine.parsers.parser import NullToolParser, ReasoningParser, ToolCallParser
from greenroom.engine.tokenizer.tokenizer import ChatTokenizer
from greenroom.schemas.logs import get_logger
from greenroom.schemas.messages.messages import Message
from greenroom.schemas.models.capabilities import CapabilityRecord
from greenroom.schemas.settings.settings import Settings

ChosenBy = Literal["record", "round trip", "response template", "markers", "family", "fallback"]
"""Source of a choice; `fallback` if neither template nor family suggests the call format."""


@attrs.frozen
class ParserChoice:
    """The formats of one model's calls and reasoning."""

    tool_parser: ToolCallParser
    reasoning_parser: ReasoningParser
    traits: TemplateTraits | None
    native_tools: bool
    calls_by: ChosenBy
    reasoning_by: ChosenBy


def choose_parsers(
    record: CapabilityRecord,
    settings: Settings,
    tokenizer: ChatTokenizer,
    traits: TemplateTraits | None,
    family: FamilyTraits,
    stop_texts: Collection[str],
) -> ParserChoice:
    """Return the parsers of a model. Raises LookupError: the record names an unknown parser."""
    turns = RenderedTurns(tokenizer, traits, stop_texts, TOOLS) if traits is not None else None
    reasoning_parser, reasoning_by = _choose_reasoning_parser(record, tokenizer, turns, family)
    marked = detect_tool_parser(tokenizer.chat_template or "", tokenizer.vocab)
    named = record.tool_parser or marked or family.tool_parser
    named_by: ChosenBy = "record" if record.tool_parser else "markers" if marked else "family"
    parser = make_tool_parser(named)
    if turns is None or traits is None:
        return ParserChoice(parser, reasoning_parser, None, False, named_by, reasoning_by)
    described = described_tool_parser(turns.description())
    demanded = record.tool_parser or described
    found = find_tool_parser(turns, traits, reasoning_parser, demanded or named, only=demanded is not None)
    templated = found is None and demanded is None
    if templated:
        found = find_response_template(tokenizer, turns, traits, reasoning_parser)
    native = traits.tools if record.native_tools is None else record.native_tools
    if found is not None and (found.exact or not renders(found.parser)):
        by: ChosenBy = "response template" if templated else "record" if record.tool_parser else "round trip"
        if native or renders(found.parser):
            return ParserChoice(found.parser, reasoning_parser, found.traits, native, by, reasoning_by)
    elif found is not None:
        parser, named_by = found.parser, "record" if record.tool_parser else "round trip"
    elif record.tool_parser is None and described is not None:
        parser, named_by = make_tool_parser(described), "markers"
    elif record.tool_parser is None and traits.tool_calls:
        parser = NullToolParser()
    as_text = with_calls_as_text(tokenizer, traits)
    if renders(parser):
        return ParserChoice(parser, reasoning_parser, as_text, native, named_by, reasoning_by)
    fallback = make_tool_parser(FALLBACK_FORMAT)
    return ParserChoice(
        fallback, reasoning_parser, as_text, native and not settings.tool_injection, "fallback", reasoning_by
    )


def renders(parser: ToolCallParser) -> bool:
    """Return whether the parser can render calls without the model's template."""
    return parser.render("name", "{}") is not None


def _choose_reasoning_parser(
    record: CapabilityRecord, tokenizer: ChatTokenizer, turns: RenderedTurns | None, family: FamilyTraits
) -> tuple[ReasoningParser, ChosenBy]:
    if record.reasoning_parser is not None:
        return make_reasoning_parser(record.reasoning_parser), "record"
    marked = detect_reasoning_parser(tokenizer.chat_template or "", tokenizer.vocab)
    found = find_reasoning_parser(turns, marked or family.reasoning_parser) if turns is not None else None
    if found is not None:
        return found, "round trip"
    return make_reasoning_parser(marked or family.reasoning_parser), "markers" if marked else "family"


_log = get_logger(__name__)

_SECONDS = 1.0  # CPU time that the template's expressions may take for the trial
_CUTS = 24


def find_response_template(
    tokenizer: ChatTokenizer, turns: RenderedTurns, traits: TemplateTraits, reasoning_parser: ReasoningParser
) -> FoundToolParser | None:
    """Return a parser by the response template, if it reads the calls that the chat template shows.

    One that does not, or whose result depends on how the text is split, is ignored with a warning.
    """
    spec = getattr(tokenizer.wrapped, "response_template", None)
    if spec is None:
        return None
    from greenroom.engine.formats.response_regions import load_template

    try:
        template = load_template(spec)
        budget = PatternBudget(_SECONDS)
        trial = ResponseTemplateParser(template, lambda: budget)
        found = find_reader(
            turns, traits, [trial], lambda parser, shown, turn: _reads(trial, shown, turn, reasoning_parser)
        )
    except Exception as error:  # The template comes from the model's folder.
        _ignore(tokenizer, str(error) or type(error).__name__)
        return None
    if found is None:
        slow = "its expressions take too long"
        _ignore(
            tokenizer, slow if budget.is_exceeded else "it does not read the template's calls in any pieces"
        )
        return None
    return FoundToolParser(ResponseTemplateParser(template), found.traits, found.exact)


def _ignore(tokenizer: ChatTokenizer, reason: str) -> None:
    _log.warning("response template ignored", folder=tokenizer.folder.name, reason=reason[:200])


def _reads(
    parser: ResponseTemplateParser, shown: RenderedTurn, turn: Message, reasoning_parser: ReasoningParser
) -> bool:
    """Return whether a turn is read correctly, and its parts equally however they are split."""
    if not read_turn(shown, parser, reasoning_parser, TOOLS).is_like(turn):
        return False
    texts = [shown.text, *(shown.text[: len(shown.text) * cut // _CUTS] for cut in range(1, _CUTS))]
    return all(_is_read_alike(parser, RenderedTurn(shown.prompt, text), reasoning_parser) for text in texts)


def _is_read_alike(
    parser: ResponseTemplateParser, shown: RenderedTurn, reasoning_parser: ReasoningParser
) -> bool:
    turns = [
        read_turn(shown, parser, reasoning_parser, TOOLS, pieces) for pieces in ([], *_pieces(shown.text))
    ]
    return all(turn == turns[0] for turn in turns)


def _pieces(text: str) -> Iterator[list[str]]:
    for size in (1, 3, 7):
        yield [text[at : at + size] for at in range(0, len(text), size)]
