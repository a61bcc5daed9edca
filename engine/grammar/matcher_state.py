"""States of an answer under its constraint, and their transitions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import Enum, auto
from typing import Any

import attrs

from greenroom.engine.grammar.grammar_tokenizer import GrammarTokenizer
from greenroom.engine.grammar.masks import MaskLatency, TokenMask, allow_all_but, allow_only
from greenroom.schemas.messages.requests import ReasoningConstraint
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
        trigger: Matcher of the markers in this phase's free text.
        position: Matched length of each marker at the end of the text, in bytes.
        grammar: llguidance matcher of a phase under a grammar; it changes with each token.
        reasoning_tokens: Number of reasoning tokens so far.
        closing_tokens: Number of tokens of the forced end so far.
        tail: Last bytes of the reasoning; before the answer has begun, all text.
        answer_begun: True if the visible answer has begun, so that no reasoning may follow.
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
        """Return the state after the token; this advances the grammar of `state`. Raises ProblemError: the
        token was not allowed, or the grammar has become too complex.
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
    """Raise if an llguidance matcher cannot continue. Raises ProblemError (400): `grammar_too_complex`."""
    if grammar.is_error():
        detail = f"The answer cannot go on under its constraint: {error_of(grammar)}"
        raise ProblemError(Problem(400, "grammar_too_complex", detail, "response_format"))


def error_of(grammar: Any) -> str:
    """Return an llguidance matcher's error, without the dump of its state."""
    text: str = re.split("<state>|<non-verbose/>", grammar.get_error())[0].strip()
    return "nothing satisfies it." if text == "NoExtensionBias" else text[:500]


# Search for markers in free text without a grammar; most steps cost and forbid nothing.
#
# Text in reasoning or before a tool call is free. Behind a marker, a grammar applies. A token that completes
# a marker together with other text (`>{`) would bypass the grammar, so only such tokens are forbidden, and
# only where they complete a marker; white space behind a marker is allowed. (A Knuth-Morris-Pratt automaton
# per marker, over bytes.)

Position = tuple[int, ...]
"""Matched length of each marker at the end of the text, in bytes."""


class TriggerMatcher:
    """Finds the first of several markers in a token stream. Immutable, so requests share it.

    Args:
        tokenizer: Tokenizer of the token stream.
        forbidden: Tokens that must not precede a marker, e.g. those that end the answer.
    """

    def __init__(
        self, tokenizer: GrammarTokenizer, markers: Sequence[str], forbidden: Iterable[int] = ()
    ) -> None:
        self._tokenizer = tokenizer
        self._markers = [marker.encode() for marker in markers]
        self._fallbacks = [_fallbacks(marker) for marker in self._markers]
        self._forbidden = tuple(forbidden)
        self._masks: dict[Position, TokenMask | None] = {}
        self._always = allow_all_but(self._forbidden, tokenizer.mask_words) if self._forbidden else None
        self.start: Position = (0,) * len(self._markers)
        # Computed when the request is prepared, not between two decode steps.
        self._candidates = self._find_candidates()
        self.mask(self.start)

    def step(self, position: Position, token: int) -> tuple[Position, int | None]:
        """Return the position after the token, and the index of the marker it completed, if any."""
        position, found, _ = self._read(position, self._tokenizer.bytes_of(token))
        return position, found

    def mask(self, position: Position) -> TokenMask | None:
        """Return the tokens allowed next; None if all are."""
        if position not in self._masks:
            carried = [token for token in self._candidates if self._carries(position, token)]
            forbidden, size = [*self._forbidden, *carried], self._tokenizer.mask_words
            self._masks[position] = allow_all_but(forbidden, size) if carried else self._always
        return self._masks[position]

    def _find_candidates(self) -> list[int]:
        lasts = {marker[-1:] for marker in self._markers}
        return [
            token
            for token, text in enumerate(self._tokenizer.token_bytes)
            if any(text[text.find(last) + 1 :].strip() for last in lasts if last in text)
        ]

    def _carries(self, position: Position, token: int) -> bool:
        text = self._tokenizer.token_bytes[token]
        _, found, end = self._read(position, text)
        return found is not None and bool(text[end:].strip())

    def _read(self, position: Position, text: bytes) -> tuple[Position, int | None, int]:
        matched = list(position)
        for end, byte in enumerate(text, 1):
            for index, marker in enumerate(self._markers):
                count = matched[index]
                while count and marker[count] != byte:
                    count = self._fallbacks[index][count - 1]
                matched[index] = count + (marker[count] == byte)
                if matched[index] == len(marker):
                    return self.start, index, end
        return tuple(matched), None, len(text)


def _fallbacks(marker: bytes) -> list[int]:
    """Return the KMP failure table: for each prefix, the length of its longest proper border."""
    table = [0] * len(marker)
    count = 0
    for index in range(1, len(marker)):
        while count and marker[index] != marker[count]:
            count = table[count - 1]
        count += marker[index] == marker[count]
        table[index] = count
    return table


def ends_inside_character(tail: bytes) -> bool:
    """Return whether the bytes end inside a UTF-8 character."""
    for back, byte in enumerate(reversed(tail[-3:]), 1):
        if byte < 0x80:
            return False
        if byte >= 0xC0:
            return back < (2 if byte < 0xE0 else 3 if byte < 0xF0 else 4)
    return False


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
        closing: Token ids that end reasoning over its budget.
        notice: Sentence for the client about what is not enforced; empty if all is.
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
