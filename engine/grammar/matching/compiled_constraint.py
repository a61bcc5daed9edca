"""A constraint compiled for one tokenizer: everything that the answers of many requests can share."""

from __future__ import annotations

from typing import Any

import attrs

from greenroom.engine.grammar.matching.pace import Pace
from greenroom.engine.grammar.matching.token_mask import TokenMask, allow_only
from greenroom.engine.grammar.matching.trigger_matcher import TriggerMatcher
from greenroom.engine.grammar.vocabulary.grammar_tokenizer import GrammarTokenizer
from greenroom.schemas.response_format import ThoughtConstraint


@attrs.frozen(eq=False)
class CompiledConstraint:
    """What an answer goes through: a thought, free text, calls, and text that follows a grammar.

    Immutable but for its pace.

    Args:
        answer: llguidance matcher at the beginning of the constrained answer; None if the text is free.
        opening: Likewise, with the marker of a thought as an alternative.
        calls: Likewise, right after each of the markers that begin a call.
        repeats: Another call may follow a call.
        call_trigger: Finds the beginning of a call in free text.
        thought_end: Finds the end of a thought.
        closing: Tokens that end a thought whose budget is spent.
        pace: Whether its masks are slow.
    """

    tokenizer: GrammarTokenizer
    thought: ThoughtConstraint | None = None
    answer: Any = None
    opening: Any = None
    calls: tuple[Any, ...] = ()
    repeats: bool = True
    call_trigger: TriggerMatcher | None = None
    thought_end: TriggerMatcher | None = None
    closing: tuple[int, ...] = ()
    pace: Pace = attrs.field(factory=Pace)
    stop_mask: TokenMask = attrs.field(init=False)

    @stop_mask.default
    def _stop_mask(self) -> TokenMask:
        return allow_only(self.tokenizer.stop_token_ids, self.tokenizer.mask_words)

    @property
    def is_empty(self) -> bool:
        """Whether every token may come at every step."""
        has_budget = self.thought is not None and self.thought.budget is not None
        return self.answer is None and not self.calls and not has_budget
