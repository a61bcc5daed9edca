"""An adapter for a model: the one place where its record, template, vocabulary and family meet."""

from __future__ import annotations

from greenroom.engine.adapters.adapter import Adapter
from greenroom.engine.adapters.thinking.switches import ThinkingMeans, ThinkingSwitches
from greenroom.engine.catalog.families import FAMILIES, FamilyTraits
from greenroom.engine.parsers.detection.parser_detection import detect_thinking_parser, detect_tool_parser
from greenroom.engine.tokenizer.tokenizer import ChatTokenizer
from greenroom.schemas.capabilities import CapabilityRecord
from greenroom.schemas.problems import ProblemError, load_failed
from greenroom.schemas.settings import Settings


def make_adapter(record: CapabilityRecord, tokenizer: ChatTokenizer, settings: Settings) -> Adapter:
    """Return the adapter of a model; one for each thread, around that thread's tokenizer.

    Parsers come from the record, else from what the template shows, else from the family.

    Raises:
        ProblemError: 503 `load_failed` if the record names a parser that does not exist.
    """
    family = FAMILIES.get(record.family, FAMILIES["default"])
    template, vocabulary = tokenizer.chat_template, tokenizer.vocab
    try:
        calls = detect_tool_parser(record, template, family.tool_parser, vocabulary)
        thoughts = detect_thinking_parser(record, template, family.thinking_parser, vocabulary)
    except LookupError as error:
        detail = f"its capability record names an unknown parser ({error})"
        raise ProblemError(load_failed(tokenizer.folder.name, detail)) from error
    known = _known_switches(family)
    return Adapter(record, tokenizer, settings, calls, thoughts, family.end_of_turn_tokens, known)


def _known_switches(family: FamilyTraits) -> ThinkingSwitches | None:
    """Return how the family's models are told whether to think, if no template shows it."""
    if family.thinking_lines is not None:
        on, off = family.thinking_lines
        return ThinkingSwitches(ThinkingMeans(system=on), ThinkingMeans(system=off))
    if family.thinking_words is not None:
        on, off = family.thinking_words
        return ThinkingSwitches(ThinkingMeans(user=on), ThinkingMeans(user=off))
    if family.empty_thought:
        return ThinkingSwitches(ThinkingMeans(), ThinkingMeans(prompt_end=family.empty_thought))
    return None
