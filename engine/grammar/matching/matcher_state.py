"""States of an answer under its constraint, and their transitions."""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import Any

import attrs

from greenroom.engine.grammar.matching.compiled_constraint import CompiledConstraint
from greenroom.engine.grammar.matching.trigger_matcher import Position, TriggerMatcher, ends_inside_character
from greenroom.schemas.problems import Problem, ProblemError


class Phase(Enum):
    """Phase of an answer under its constraint."""

    OPENING = auto()
    """Start of the output, where reasoning or the constrained answer may begin."""

    REASONING = auto()
    CLOSING = auto()
    """Forced end of reasoning that has used up its budget."""

    ANSWER = auto()
    """Constrained answer, which follows one grammar."""

    FREE = auto()
    """Unconstrained text, in which a call may begin."""

    CALL = auto()
    ENDED = auto()
    """End of the answer; nothing may follow."""


@attrs.frozen(eq=False)
class MatcherState:
    """State of an answer under its constraint.

    Args:
        phase: Phase of the answer.
        trigger: Matcher of the markers in this phase's free text.
        position: Matched length of each marker at the end of the text, in bytes.
        grammar: llguidance matcher of a phase under a grammar; it changes with each token.
        reasoning_tokens: Number of reasoning tokens so far.
        closing_tokens: Number of tokens of the forced end so far.
        tail: Last bytes of the reasoning; before the answer has begun, all text.
        answer_begun: True if the visible answer has begun, so that no reasoning may follow.
        call: Text of the call that is being written, where all calls are required.
        calls: Texts of the calls before it.
    """

    phase: Phase
    trigger: TriggerMatcher | None = None
    position: Position = ()
    grammar: Any = None
    reasoning_tokens: int = 0
    closing_tokens: int = 0
    tail: bytes = b""
    answer_begun: bool = False
    call: bytes = b""
    calls: frozenset[bytes] = frozenset()


class Transitions:
    """Transitions between the states of answers under one constraint. Stateless itself."""

    def __init__(self, constraint: CompiledConstraint) -> None:
        self._constraint = constraint
        self._reasoning = constraint.reasoning
        self._bytes_of = constraint.tokenizer.bytes_of
        self._stop_token_ids = constraint.tokenizer.stop_token_ids

    def start(self) -> MatcherState:
        """Return the state before the first token."""
        if self._reasoning is not None and self._reasoning.opened:
            return self._begin_reasoning()
        if self._constraint.opening is not None:
            return MatcherState(Phase.OPENING, grammar=self._constraint.opening.deep_copy())
        return self._begin_answer()

    def advance(self, state: MatcherState, token: int) -> MatcherState:
        """Return the state after the token; this advances the grammar of `state`.

        Raises:
            ProblemError: The token was not allowed, or the grammar has become too complex.
        """
        if state.phase is Phase.ENDED or token in self._stop_token_ids:
            return MatcherState(Phase.ENDED)
        match state.phase:
            case Phase.REASONING:
                return self._advance_reasoning(state, token)
            case Phase.CLOSING:
                written = state.closing_tokens + 1
                if written == len(self._constraint.closing):
                    return self._begin_answer()
                return attrs.evolve(state, closing_tokens=written)
            case Phase.FREE:
                return self._advance_free(state, token)
            case _:
                return self._advance_grammar(state, token)

    def _begin_reasoning(self) -> MatcherState:
        trigger = self._constraint.reasoning_end
        assert trigger is not None
        if self._is_spent(0):
            return MatcherState(Phase.CLOSING)
        return MatcherState(Phase.REASONING, trigger, trigger.start)

    def _is_spent(self, tokens: int) -> bool:
        reasoning = self._reasoning
        return reasoning is not None and reasoning.budget is not None and tokens >= reasoning.budget

    def _begin_free(self, answer_begun: bool) -> MatcherState:
        trigger = self._constraint.call_trigger
        position = trigger.start if trigger else ()
        return MatcherState(
            Phase.FREE, trigger, position, answer_begun=answer_begun or self._reasoning is None
        )

    def _begin_answer(self) -> MatcherState:
        if self._constraint.answer is None:
            return self._begin_free(answer_begun=False)
        return MatcherState(Phase.ANSWER, grammar=self._constraint.answer.deep_copy())

    def _advance_reasoning(self, state: MatcherState, token: int) -> MatcherState:
        assert state.trigger is not None
        position, found = state.trigger.step(state.position, token)
        if found is not None:
            return self._begin_answer()
        tokens = state.reasoning_tokens + 1
        tail = (state.tail + self._bytes_of(token))[-3:]
        if self._is_spent(tokens) and not (ends_inside_character(tail) and not self._is_spent(tokens - 3)):
            return MatcherState(Phase.CLOSING)
        return attrs.evolve(state, position=position, reasoning_tokens=tokens, tail=tail)

    def _advance_free(self, state: MatcherState, token: int) -> MatcherState:
        if not state.answer_begun:
            state = self._look_for_reasoning(state, token)
            if state.phase is not Phase.FREE:
                return state
        if state.trigger is None:
            return state
        position, found = state.trigger.step(state.position, token)
        if found is None:
            return attrs.evolve(state, position=position)
        return MatcherState(Phase.CALL, grammar=self._constraint.calls[found].deep_copy())

    def _look_for_reasoning(self, state: MatcherState, token: int) -> MatcherState:
        """Return the state after checking whether the text begins reasoning, may do so, or does not."""
        assert self._reasoning is not None
        text = state.tail + self._bytes_of(token)
        start, written = self._reasoning.start.encode(), text.lstrip()
        if written.startswith(start):
            return self._begin_reasoning()
        return attrs.evolve(state, tail=text, answer_begun=not start.startswith(written))

    def _advance_grammar(self, state: MatcherState, token: int) -> MatcherState:
        if not state.grammar.consume_token(token):
            check_grammar(state.grammar)
        if state.phase is Phase.OPENING:
            state = self._look_for_reasoning(state, token)
            if state.phase is not Phase.OPENING:
                return state
            if state.answer_begun:
                state = attrs.evolve(
                    state, phase=Phase.ANSWER, call=state.tail if self._constraint.ends_repeats else b""
                )
        elif self._constraint.ends_repeats:
            state = attrs.evolve(state, call=state.call + self._bytes_of(token))
        if state.call and state.grammar.is_accepting():
            if state.call.strip() in state.calls:
                return MatcherState(Phase.ENDED)
            state = attrs.evolve(state, call=b"", calls=state.calls | {state.call.strip()})
        if not state.grammar.is_stopped():
            return state
        check_grammar(state.grammar)
        if state.phase is Phase.CALL and self._constraint.repeats:
            return self._begin_free(answer_begun=True)
        return MatcherState(Phase.ENDED)


def check_grammar(grammar: Any) -> None:
    """Raise if an llguidance matcher cannot continue.

    Raises:
        ProblemError: 400 `grammar_too_complex`.
    """
    if grammar.is_error():
        detail = f"The answer cannot go on under its constraint: {error_of(grammar)}"
        raise ProblemError(Problem(400, "grammar_too_complex", detail, "response_format"))


def error_of(grammar: Any) -> str:
    """Return an llguidance matcher's error, without the dump of its state."""
    text: str = re.split("<state>|<non-verbose/>", grammar.get_error())[0].strip()
    return "nothing satisfies it." if text == "NoExtensionBias" else text[:500]
