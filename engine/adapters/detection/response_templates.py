"""Trial of the response template that a model's tokenizer ships (transformers' `response_template`)."""

from __future__ import annotations

from collections.abc import Iterator

from greenroom.engine.adapters.detection.rendered_turns import RenderedTurn, RenderedTurns
from greenroom.engine.adapters.detection.round_trip import TOOLS, FoundToolParser, find_reader, read_turn
from greenroom.engine.adapters.templates.template_probe import TemplateTraits
from greenroom.engine.formats.response_template.bounded_patterns import PatternBudget
from greenroom.engine.formats.response_template.parser import ResponseTemplateParser
from greenroom.engine.parsers.reasoning_parser import ReasoningParser
from greenroom.engine.tokenizer.tokenizer import ChatTokenizer
from greenroom.schemas.logs import get_logger
from greenroom.schemas.messages.messages import Message

_log = get_logger(__name__)

_SECONDS = 1.0
"""CPU time that the template's expressions may take for the trial."""
_CUTS = 24


def find_response_template(
    tokenizer: ChatTokenizer, turns: RenderedTurns, traits: TemplateTraits, reasoning_parser: ReasoningParser
) -> FoundToolParser | None:
    """Return a parser by the response template, if it reads the calls that the chat template shows.

    One that does not, or whose result depends on how the text is split, is ignored with a warning.

    Args:
        turns: Renderer of turns.
        traits: Traits of the chat template.
        reasoning_parser: Parser of reasoning.
    """
    spec = getattr(tokenizer.wrapped, "response_template", None)
    if spec is None:
        return None
    from greenroom.engine.formats.response_template.load_template import load_template

    try:
        template = load_template(spec)
        budget = PatternBudget(_SECONDS)
        trial = ResponseTemplateParser(template, lambda: budget)
        found = find_reader(
            turns,
            traits,
            [trial],
            lambda parser, shown, turn: _reads(trial, shown, turn, reasoning_parser),
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
