"""Compiles constraints for one model's tokenizer, before the request is admitted."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import Any

import attrs

from greenroom.engine.grammar.call_formats import CallGrammar, call_grammar
from greenroom.engine.grammar.grammar_text import MARGIN, GrammarText, answer_rule
from greenroom.engine.grammar.grammar_tokenizer import GrammarTokenizer
from greenroom.engine.grammar.limits import parser_limits
from greenroom.engine.grammar.matcher import CompiledConstraint, Matcher
from greenroom.engine.grammar.trigger_matcher import TriggerMatcher
from greenroom.schemas.problems import invalid
from greenroom.schemas.response_format import Constraint, JsonSchemaFormat, ThoughtConstraint


class GrammarCompiler:
    """Turns constraints into row matchers. Belongs to one thread; what it returns may go to another.

    Args:
        tokenizer: The model's tokenizer.
        capacity: Compiled constraints that are kept; an agent sends the same ones again and again.
    """

    def __init__(self, tokenizer: GrammarTokenizer, capacity: int = 64) -> None:
        self._tokenizer = tokenizer
        self._capacity = capacity
        self._plans: OrderedDict[bytes, CompiledConstraint] = OrderedDict()
        self._gates: dict[tuple[tuple[str, ...], bool], TriggerMatcher] = {}

    def compile(self, constraint: Constraint) -> Matcher | None:
        """A matcher at the beginning of an answer; None if nothing is constrained.

        Raises:
            ProblemError: 400 that names what cannot be honoured and where.
        """
        try:
            plan = self._known_plan(constraint)
        except RecursionError:
            asked = constraint.response_format
            param = asked.param if isinstance(asked, JsonSchemaFormat) else "tools"
            raise invalid("The schema, or a value in it, is nested too deep", param) from None
        return Matcher(plan) if plan.constrains else None

    def _known_plan(self, constraint: Constraint) -> CompiledConstraint:
        key = hashlib.sha256(repr(constraint).encode()).digest()
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plan(constraint)
            self._plans[key] = plan
            if len(self._plans) > self._capacity:
                self._plans.popitem(last=False)
        self._plans.move_to_end(key)
        return plan

    def _plan(self, constraint: Constraint) -> CompiledConstraint:
        thought = constraint.thought
        alone = constraint.response_format is None
        calls = None if constraint.calls is None else call_grammar(constraint.calls, alone)
        lazy = calls is not None and calls.lazy and alone
        plan = CompiledConstraint(self._tokenizer, thought=thought)
        if calls is not None and lazy:
            bodies = tuple(self._prototype(body, "tools") for body in calls.bodies())
            plan = attrs.evolve(plan, calls=bodies, repeats=calls.repeats)
        elif calls is not None or not alone:
            plan = self._whole_answer(plan, constraint, calls)
        return self._with_gates(plan, calls.triggers if calls is not None and lazy else ())

    def _whole_answer(
        self, plan: CompiledConstraint, constraint: Constraint, calls: CallGrammar | None
    ) -> CompiledConstraint:
        def answer(text: GrammarText) -> str:
            options = [] if calls is None else [calls.whole(text)]
            if constraint.response_format is not None and (calls is None or not calls.needed):
                options.append(answer_rule(text, constraint.response_format))
            return " | ".join(options)

        def opening(text: GrammarText) -> str:
            assert thought is not None
            return f"{text.spelled(thought.start)} | {answer(text)}"

        def after(text: GrammarText) -> str:
            return f"{MARGIN} ({text.rule(answer(text))})"

        thought = constraint.thought
        param = "tools" if constraint.response_format is None else constraint.response_format.param
        if thought is None:
            return attrs.evolve(plan, answer=self._prototype(answer, param))
        first = None if thought.opened or thought.budget == 0 else self._prototype(opening, param)
        return attrs.evolve(plan, answer=self._prototype(after, param), opening=first)

    def _with_gates(self, plan: CompiledConstraint, triggers: tuple[str, ...]) -> CompiledConstraint:
        free = self._gate(triggers, ended=False) if triggers else None
        if plan.thought is None:
            return attrs.evolve(plan, free=free)
        inside = self._gate((plan.thought.end,), ended=plan.answer is not None)
        return attrs.evolve(plan, free=free, inside=inside, closing=self._closing(plan.thought))

    def _gate(self, markers: tuple[str, ...], *, ended: bool) -> TriggerMatcher:
        key = (markers, ended)
        if key not in self._gates:
            forbidden = self._tokenizer.stop_token_ids if ended else ()
            self._gates[key] = TriggerMatcher(self._tokenizer, markers, forbidden)
        return self._gates[key]

    def _closing(self, thought: ThoughtConstraint) -> tuple[int, ...]:
        return self._tokenizer.encode(f"\n{thought.end}\n\n")

    def _prototype(self, rule: Any, param: str) -> Any:
        """A matcher at its beginning, from which each row's own is copied."""
        from llguidance import LLMatcher

        text = GrammarText(self._tokenizer)
        grammar = text.build(rule(text))
        matcher = LLMatcher(self._tokenizer.inner, grammar, log_level=0, limits=parser_limits())
        probe = matcher.deep_copy()
        if not probe.is_error():
            probe.compute_bitmask()  # a grammar that nothing satisfies shows itself in its first mask
        if probe.is_error():
            raise invalid(_reason(probe.get_error()), param, "unsupported_grammar")
        return matcher


def _reason(error: str) -> str:
    """llguidance's message without its state dump."""
    text = error.partition("<state>")[0].strip()
    return f"The constraint cannot be compiled: {text[:500]}"
