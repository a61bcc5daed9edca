"""A constraint compiled for one tokenizer, shared by the answers of many requests."""

from __future__ import annotations

from typing import Any

import attrs

from greenroom.engine.grammar.matching.mask_latency import MaskLatency
from greenroom.engine.grammar.matching.token_mask import TokenMask, allow_only
from greenroom.engine.grammar.matching.trigger_matcher import TriggerMatcher
from greenroom.engine.grammar.vocabulary.grammar_tokenizer import GrammarTokenizer
from greenroom.schemas.messages.response_format import ReasoningConstraint


@attrs.frozen(eq=False)
class CompiledConstraint:
    """Matchers of an answer's phases: reasoning, free text, calls and text under a grammar.

    Immutable except for `mask_latency`.

    Args:
        tokenizer: Tokenizer that the constraint was compiled for.
        reasoning: Constraint on the reasoning; None if the model does not reason.
        answer: llguidance matcher at the start of the constrained answer; None if the text is free.
        opening: llguidance matcher of the answer or the marker that starts reasoning.
        calls: llguidance matchers behind each start marker of a call.
        repeats: True if another call may follow a call.
        ends_repeats: True if the answer consists of calls, and ends after one that repeats another.
        call_trigger: Matcher of a call's start in free text.
        reasoning_end: Matcher of the reasoning's end.
        closing: Token ids that end reasoning over its budget.
        notice: Sentence for the client about what is not enforced; empty if all is.
        mask_latency: Speed record of its masks.
    """

    tokenizer: GrammarTokenizer
    reasoning: ReasoningConstraint | None = None
    answer: Any = None
    opening: Any = None
    calls: tuple[Any, ...] = ()
    repeats: bool = True
    ends_repeats: bool = False
    call_trigger: TriggerMatcher | None = None
    reasoning_end: TriggerMatcher | None = None
    closing: tuple[int, ...] = ()
    notice: str = ""
    mask_latency: MaskLatency = attrs.field(factory=MaskLatency)
    stop_mask: TokenMask = attrs.field(init=False)

    @stop_mask.default
    def _stop_mask(self) -> TokenMask:
        return allow_only(self.tokenizer.stop_token_ids, self.tokenizer.mask_words)

    @property
    def is_empty(self) -> bool:
        """True if every token is allowed at every step."""
        has_budget = self.reasoning is not None and self.reasoning.budget is not None
        return self.answer is None and not self.calls and not has_budget
