"""Construction of a model's adapter from its record, template, vocabulary and family."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from greenroom.engine.adapters.adapter import Adapter
from greenroom.engine.adapters.detection.parser_choice import choose_parsers
from greenroom.engine.adapters.reasoning.switches import PromptChanges, ReasoningSwitches
from greenroom.engine.adapters.templates.template_probe import probe_template
from greenroom.engine.catalog.kinds.families import FAMILIES, FamilyTraits
from greenroom.engine.formats.registry import REASONING_PARSERS, TOOL_PARSERS
from greenroom.engine.tokenizer.tokenizer import ChatTokenizer
from greenroom.schemas.models.capabilities import CapabilityRecord
from greenroom.schemas.problems import ProblemError, load_failed
from greenroom.schemas.settings.settings import Settings


def make_adapter(
    record: CapabilityRecord,
    tokenizer: ChatTokenizer,
    settings: Settings,
    system_prompt: str = "",
    make: Callable[..., Adapter] = Adapter,
) -> Adapter:
    """Return the adapter of a model, for the thread that owns the tokenizer.

    Args:
        system_prompt: Default system prompt of conversations without one.
        make: Adapter class; it takes the arguments of a text model's adapter.

    Raises:
        ProblemError: 503 `load_failed` if the record names an unknown parser.
    """
    family = FAMILIES.get(record.family, FAMILIES["default"])
    stop_token_ids = find_stop_token_ids(tokenizer, family.end_of_turn_tokens)
    stop_texts = [text for text, ident in tokenizer.added_tokens.items() if ident in stop_token_ids]
    traits = probe_template(tokenizer) if tokenizer.has_chat_template else None
    record = _without_forgotten_parsers(record)
    try:
        choice = choose_parsers(record, settings, tokenizer, traits, family, stop_texts)
    except LookupError as error:
        detail = f"its capability record names an unknown parser ({error})"
        raise ProblemError(load_failed(tokenizer.folder.name, detail)) from error
    switches = _known_switches(family)
    return make(record, tokenizer, settings, choice, stop_token_ids, switches, system_prompt)


def _without_forgotten_parsers(record: CapabilityRecord) -> CapabilityRecord:
    """Return the record without parsers that a probe found and that this version does not have."""
    probed = record.probed
    if probed is None:
        return record
    calls, reasoning = record.tool_parser, record.reasoning_parser
    if calls == probed.tool_parser_id and calls not in TOOL_PARSERS:
        calls = None
    if reasoning == probed.thinking_parser_id and reasoning not in REASONING_PARSERS:
        reasoning = None
    return attrs.evolve(record, tool_parser=calls, reasoning_parser=reasoning)


def _known_switches(family: FamilyTraits) -> ReasoningSwitches | None:
    """Return the reasoning switches of the family's models, for templates that reveal none."""
    if family.reasoning_lines is not None:
        on, off = family.reasoning_lines
        return ReasoningSwitches(PromptChanges(system=on), PromptChanges(system=off))
    if family.reasoning_words is not None:
        on, off = family.reasoning_words
        return ReasoningSwitches(PromptChanges(user=on), PromptChanges(user=off))
    if family.empty_reasoning:
        return ReasoningSwitches(PromptChanges(), PromptChanges(prompt_end=family.empty_reasoning))
    return None


_END_OF_TURN_TOKENS = (
    "<|im_end|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<end_of_turn>",
    "<|flush|>",
    "<|calls|>",
)
"""Tokens that end a turn in any vocabulary that has them, declared as such or not."""


def find_stop_token_ids(tokenizer: ChatTokenizer, of_family: tuple[str, ...]) -> frozenset[int]:
    """Return the ids of the tokens that end a turn: declared, well-known and the family's.

    Args:
        tokenizer: Tokenizer of the model.
        of_family: End-of-turn tokens of the model's family.
    """
    added = tokenizer.added_tokens
    ends = {added[token] for token in (*_END_OF_TURN_TOKENS, *of_family) if token in added}
    return tokenizer.eos_token_ids | ends
