"""What one row may say next: its thought, free text, calls and the constrained answer, one by one."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto
from typing import Any

import attrs

from greenroom.engine.grammar.grammar_tokenizer import GrammarTokenizer
from greenroom.engine.grammar.token_mask import TokenMask, only
from greenroom.engine.grammar.trigger_matcher import Position, TriggerMatcher, ends_inside_character
from greenroom.schemas.problems import Problem, ProblemError
from greenroom.schemas.response_format import ThoughtConstraint


class Phase(Enum):
    """Where a row stands."""

    OPENING = auto()
    """Nothing is settled: a thought may begin, or the constrained answer."""

    THOUGHT = auto()
    CLOSING = auto()
    """The thought has spent its budget and its end is being written."""

    ANSWER = auto()
    """Everything visible follows one grammar."""

    FREE = auto()
    """Text of any kind, in which a call may begin."""

    CALL = auto()
    ENDED = auto()
    """Nothing may follow."""


@attrs.frozen(eq=False)
class CompiledConstraint:
    """A compiled constraint: what a row goes through. Immutable and shared.

    Args:
        answer: llguidance matcher at the beginning of the constrained answer.
        opening: Likewise, with the marker of a thought as an alternative.
        calls: Likewise, right after each of the markers that begin a call.
        repeats: Another call may follow a call.
        free: Watches free text for a call.
        inside: Watches a thought for its end.
        closing: Tokens that end a thought whose budget is spent.
    """

    tokenizer: GrammarTokenizer
    thought: ThoughtConstraint | None = None
    answer: Any = None
    opening: Any = None
    calls: tuple[Any, ...] = ()
    repeats: bool = True
    free: TriggerMatcher | None = None
    inside: TriggerMatcher | None = None
    closing: tuple[int, ...] = ()
    ended: TokenMask = attrs.field(init=False)

    @ended.default
    def _ended(self) -> TokenMask:
        return only(self.tokenizer.stop_token_ids, self.tokenizer.mask_words)

    @property
    def constrains(self) -> bool:
        """Whether a row has to be watched at all."""
        limited = self.thought is not None and self.thought.budget is not None
        return self.answer is not None or bool(self.calls) or limited


@attrs.frozen(eq=False)
class _State:
    phase: Phase
    gate: TriggerMatcher | None = None
    position: Position = ()
    matcher: Any = None
    spent: int = 0
    """Tokens of the thought so far."""
    closed: int = 0
    """Tokens of its forced end so far."""
    tail: bytes = b""
    """Last bytes of the thought; before anything is settled, all of the answer."""
    settled: bool = False
    """The visible answer has begun, so that no thought can."""


_KEPT = 64
"""Tokens that can be taken back; more than any draft is long."""


class Matcher:
    """Says which tokens may come next in one row. Belongs to one thread at a time.

    The batch loop asks for a mask while the forward pass runs, samples under it, and tells the matcher
    which token it took.
    """

    def __init__(self, plan: CompiledConstraint) -> None:
        self._plan = plan
        self._state = self._begin()
        self._history: list[tuple[_State, bool]] = []

    @property
    def phase(self) -> Phase:
        """Where the row stands."""
        return self._state.phase

    @property
    def is_accepting(self) -> bool:
        """Whether what was written so far is a whole answer."""
        state = self._state
        if state.phase in (Phase.ANSWER, Phase.OPENING):
            return bool(state.matcher.is_accepting())
        if state.phase in (Phase.FREE, Phase.ENDED):
            return True
        return state.phase is Phase.THOUGHT and self._plan.answer is None

    @property
    def is_terminated(self) -> bool:
        """Nothing but the end may follow: the row can finish without another step."""
        return self._state.phase is Phase.ENDED

    @property
    def constrained(self) -> bool:
        """Inside text that a grammar holds; stop strings must not cut it short."""
        return self._state.phase in (Phase.ANSWER, Phase.OPENING, Phase.CALL, Phase.CLOSING)

    @property
    def constrains_answer(self) -> bool:
        """Everything visible follows a grammar, from its first to its last character."""
        return self._plan.answer is not None

    @property
    def constrains_calls(self) -> bool:
        """Whatever calls are made follow a grammar, so that none can turn out wrong."""
        return self._plan.answer is not None or bool(self._plan.calls)

    @property
    def allows_thought(self) -> bool:
        """A thought may come before the answer."""
        return self._plan.thought is not None

    def suppressible(self, end_tokens: Iterable[int]) -> tuple[int, ...]:
        """Those of the tokens that can be forbidden for a while and leave something to say at every step."""
        return () if self.constrains_answer else tuple(filter(self.is_stop_token, end_tokens))

    @property
    def stoppable(self) -> bool:
        """A stop string or token of the client may end the answer here."""
        return not self.constrained and self.is_accepting

    def is_stop_token(self, token: int) -> bool:
        """Whether the token ends an answer by itself."""
        return token in self._plan.tokenizer.stop_token_ids

    @property
    def mask_words(self) -> int:
        """Length of a mask in words of 32 tokens."""
        return self._plan.tokenizer.mask_words

    @property
    def grammar_state(self) -> Any:
        """The llguidance matcher that the next mask has to be computed with; None if it is known."""
        return self._state.matcher

    def fixed_mask(self) -> TokenMask | None:
        """The mask of a phase without a grammar; None if every token may come next."""
        state, plan = self._state, self._plan
        if state.phase is Phase.ENDED:
            return plan.ended
        if state.phase is Phase.CLOSING:
            return only([plan.closing[state.closed]], plan.tokenizer.mask_words)
        return None if state.gate is None else state.gate.mask(state.position)

    def mask(self) -> TokenMask | None:
        """The tokens that may come next; None if all may. For one row; `mask_rows` is for a batch.

        Raises:
            ProblemError: The grammar has become too complex to go on.
        """
        import numpy as np

        if self._state.matcher is None:
            return self.fixed_mask()
        words = np.zeros(self._plan.tokenizer.mask_words, np.uint32)
        self._state.matcher.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
        self.check()
        return TokenMask(words)

    def check(self) -> None:
        """Raise if llguidance gave up.

        Raises:
            ProblemError: The grammar has become too complex to go on.
        """
        matcher = self._state.matcher
        if matcher is not None and matcher.is_error():
            reason = matcher.get_error().partition("<state>")[0].strip()
            detail = f"The constraint has become too complex to go on: {reason[:300]}"
            raise ProblemError(Problem(400, "grammar_too_complex", detail, "response_format"))

    def accept_token(self, token: int) -> None:
        """Take the token that was sampled.

        Raises:
            ProblemError: The token was not allowed, or the grammar has become too complex.
        """
        state = self._state
        following, consumed = self._after(state, token)
        self._history.append((state, consumed))
        if len(self._history) > 2 * _KEPT:
            del self._history[:_KEPT]
        self._state = following

    def rollback(self, tokens: int) -> None:
        """Take back the last tokens; at most 64, and none from before a clone."""
        for _ in range(tokens):
            self._state, consumed = self._history.pop()
            if consumed:
                self._state.matcher.rollback(1)

    def forced_tokens(self) -> tuple[int, ...]:
        """Tokens that come next whatever the model thinks; often none. A draft that is always accepted.

        The loop may append them without sampling; each still has to be given to `advance`.
        """
        state = self._state
        if state.phase is Phase.CLOSING:
            return self._plan.closing[state.closed :]
        if state.matcher is None:
            return ()
        # The last token of a forced text may be longer than the text: it is left to the model.
        tokens = self._plan.tokenizer.inner.tokenize_bytes(state.matcher.compute_ff_bytes())[:-1]
        return tuple(tokens[: state.matcher.validate_tokens(tokens)])

    def valid_prefix(self, tokens: list[int]) -> int:
        """How many of these drafted tokens would be accepted, one after the other."""
        taken = 0
        for token in tokens:
            mask = self.mask()
            if token in self._plan.tokenizer.stop_token_ids or (mask is not None and not mask.allows(token)):
                break
            self.accept_token(token)
            taken += 1
        self.rollback(taken)
        return taken

    def clone(self) -> Matcher:
        """A matcher that goes on from here by itself, for n > 1. It takes nothing back from before."""
        twin = Matcher.__new__(Matcher)
        matcher = self._state.matcher
        twin._plan = self._plan
        twin._state = attrs.evolve(self._state, matcher=None if matcher is None else matcher.deep_copy())
        twin._history = []
        return twin

    def _begin(self) -> _State:
        plan, thought = self._plan, self._plan.thought
        if thought is not None and thought.opened:
            return self._thinking(0)
        if plan.opening is not None:
            return _State(Phase.OPENING, matcher=plan.opening.deep_copy())
        return self._answering()

    def _thinking(self, spent: int) -> _State:
        gate = self._plan.inside
        assert gate is not None
        if self._exhausted(spent):
            return _State(Phase.CLOSING)
        return _State(Phase.THOUGHT, gate, gate.start, spent=spent)

    def _exhausted(self, spent: int) -> bool:
        thought = self._plan.thought
        return thought is not None and thought.budget is not None and spent >= thought.budget

    def _free(self, settled: bool) -> _State:
        gate = self._plan.free
        settled = settled or self._plan.thought is None
        return _State(Phase.FREE, gate, gate.start if gate else (), settled=settled)

    def _answering(self) -> _State:
        """The visible answer, before its first token."""
        if self._plan.answer is None:
            return self._free(settled=False)
        return _State(Phase.ANSWER, matcher=self._plan.answer.deep_copy())

    def _after(self, state: _State, token: int) -> tuple[_State, bool]:
        """The state after the token, and whether the state's matcher consumed it."""
        if state.phase is Phase.ENDED or token in self._plan.tokenizer.stop_token_ids:
            return _State(Phase.ENDED), False
        match state.phase:
            case Phase.THOUGHT:
                return self._after_thought(state, token), False
            case Phase.CLOSING:
                closed = state.closed + 1
                done = closed == len(self._plan.closing)
                return (self._answering() if done else attrs.evolve(state, closed=closed)), False
            case Phase.FREE:
                return self._after_free(state, token), False
            case _:
                return self._consume(state, token), True

    def _after_thought(self, state: _State, token: int) -> _State:
        assert state.gate is not None
        position, found = state.gate.step(state.position, token)
        if found is not None:
            return self._answering()
        spent = state.spent + 1
        tail = (state.tail + self._plan.tokenizer.token_bytes[token])[-3:]
        if self._exhausted(spent) and not (ends_inside_character(tail) and not self._exhausted(spent - 3)):
            return _State(Phase.CLOSING)
        return attrs.evolve(state, position=position, spent=spent, tail=tail)

    def _after_free(self, state: _State, token: int) -> _State:
        if not state.settled:
            state = self._settle(state, token)
            if state.phase is Phase.THOUGHT or state.phase is Phase.CLOSING:
                return state
        if state.gate is None:
            return state
        position, found = state.gate.step(state.position, token)
        if found is None:
            return attrs.evolve(state, position=position)
        return _State(Phase.CALL, matcher=self._plan.calls[found].deep_copy())

    def _settle(self, state: _State, token: int) -> _State:
        """Whether the answer so far is a thought's beginning, may become one, or is none."""
        assert self._plan.thought is not None
        text = state.tail + self._plan.tokenizer.token_bytes[token]
        start, written = self._plan.thought.start.encode(), text.lstrip()
        if written.startswith(start):
            return self._thinking(0)
        return attrs.evolve(state, tail=text, settled=not start.startswith(written))

    def _consume(self, state: _State, token: int) -> _State:
        if not state.matcher.consume_token(token):
            self.check()
        if state.phase is Phase.OPENING:
            following = self._settle(state, token)
            if following.phase is not Phase.OPENING:
                return following
            state = attrs.evolve(following, phase=Phase.ANSWER if following.settled else Phase.OPENING)
        if not state.matcher.is_stopped():
            return state
        self.check()
        if state.phase is Phase.CALL and self._plan.repeats:
            return self._free(settled=True)
        return _State(Phase.ENDED)
