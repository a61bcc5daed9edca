"""Which tokens may come next in one answer: in its thought, free text, calls and constrained part."""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import partial
from typing import Any

import attrs
import numpy as np

from greenroom.engine.grammar.matching.compiled_constraint import CompiledConstraint
from greenroom.engine.grammar.matching.grammar_threads import Job, grammar_threads
from greenroom.engine.grammar.matching.matcher_state import MatcherState, Phase, Transitions, check_grammar
from greenroom.engine.grammar.matching.pace import Pace
from greenroom.engine.grammar.matching.token_mask import TokenMask, allow_only
from greenroom.schemas.problems import Problem, ProblemError

Mask = TokenMask | Problem | None
"""Which tokens may come next, or why none can; None if all may."""


@attrs.frozen(eq=False)
class _LookAhead:
    """The state after a token, and its mask, while another thread computes them; no token: the mask alone."""

    token: int | None
    job: Job


class Matcher:
    """Follows one answer under its constraint. Belongs to one thread at a time.

    The batch loop asks for a mask while the forward pass runs, samples under it, and tells the matcher
    which token was sampled. Where masks are slow, it has each prepared on another thread.

    Attributes:
        constraint: What the answer goes through; shared with others.
    """

    def __init__(self, constraint: CompiledConstraint) -> None:
        self.constraint = constraint
        self._transitions = Transitions(constraint)
        self._state = self._transitions.start()
        self._mask: Mask = None
        self._ahead: _LookAhead | None = None

    @property
    def phase(self) -> Phase:
        """What is being written."""
        return self._state.phase

    @property
    def is_accepting(self) -> bool:
        """Whether what was written so far is a whole answer."""
        state = self._state
        if state.phase in (Phase.ANSWER, Phase.OPENING):
            return bool(state.grammar.is_accepting())
        if state.phase in (Phase.FREE, Phase.ENDED):
            return True
        return state.phase is Phase.THOUGHT and self.constraint.answer is None

    @property
    def is_terminated(self) -> bool:
        """Nothing but the end may follow: the sequence can finish without another step."""
        return self._state.phase is Phase.ENDED

    @property
    def stoppable(self) -> bool:
        """A stop string or token of the client may end the answer here."""
        constrained = (Phase.ANSWER, Phase.OPENING, Phase.CALL, Phase.CLOSING)
        return self._state.phase not in constrained and self.is_accepting

    @property
    def constrains_answer(self) -> bool:
        """Everything visible follows a grammar, from its first to its last character."""
        return self.constraint.answer is not None

    @property
    def constrains_calls(self) -> bool:
        """Whatever calls are made follow a grammar, so that none can turn out wrong."""
        return self.constraint.answer is not None or bool(self.constraint.calls)

    @property
    def allows_thought(self) -> bool:
        """A thought may come before the answer."""
        return self.constraint.thought is not None

    @property
    def mask_words(self) -> int:
        """Length of a mask in words of 32 tokens."""
        return self.constraint.tokenizer.mask_words

    @property
    def grammar(self) -> Any:
        """The llguidance matcher that computes the next mask; None if `fixed_mask` is the mask."""
        return self._state.grammar

    def is_stop_token(self, token: int) -> bool:
        """Return whether the token ends an answer by itself."""
        return token in self.constraint.tokenizer.stop_token_ids

    def suppressible(self, end_tokens: Iterable[int]) -> tuple[int, ...]:
        """Return those tokens that can be forbidden for a while and leave something to say at every step."""
        return () if self.constrains_answer else tuple(filter(self.is_stop_token, end_tokens))

    def fixed_mask(self, state: MatcherState | None = None) -> TokenMask | None:
        """Return the mask of a phase without a grammar; None if every token may come next."""
        state, constraint = state or self._state, self.constraint
        if state.phase is Phase.ENDED:
            return constraint.stop_mask
        if state.phase is Phase.CLOSING:
            return allow_only([constraint.closing[state.closing_tokens]], constraint.tokenizer.mask_words)
        return None if state.trigger is None else state.trigger.mask(state.position)

    @property
    def pace(self) -> Pace:
        """Whether masks under this constraint are slow."""
        return self.constraint.pace

    @property
    def known_mask(self) -> Mask:
        """The next mask as far as it was computed before."""
        return self._mask

    def keep_mask(self, mask: Mask) -> None:
        """Keep the next mask: what a preempted sequence has not read is sampled again."""
        self._mask = mask

    def mask(self) -> TokenMask | None:
        """Return the tokens that may come next; None if all may. `compute_masks` is for a batch.

        Raises:
            ProblemError: The grammar has become too complex to go on.
        """
        return self._compute_mask(self._state)

    def prepare(self, token: int | None = None) -> bool:
        """Compute the next mask on another thread, if it is likely to be slow; return whether it can be had.

        Args:
            token: What `accept_token` will be told; None if the mask is that of where the answer stands.
        """
        ahead = self._ahead
        if ahead is not None and ahead.token not in (None, token):
            if token is None and self._mask is not None:
                return True
            if not ahead.job.is_done:
                return False
            self._roll_back(ahead)
            ahead = None
        if ahead is None:
            if not self.pace.is_slow or self._state.grammar is None or (token is None and self._mask):
                return True
            job = self.pace.start(partial(self._look_ahead, self._state, token))
            if job is None:
                return False
            ahead = self._ahead = _LookAhead(token, job)
        if not (ahead.job.is_done or ahead.job.is_stuck):
            grammar_threads().replace_stuck()
            return False
        if ahead.token is None:
            self._take_mask(ahead)
            return token is None or self.prepare(token)
        return True

    def accept_token(self, token: int) -> None:
        """Go on past the token that was sampled.

        Raises:
            ProblemError: The token was not allowed, or the grammar has become too complex.
        """
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead.token == token:
            self._mask = None
            self._state, self._mask = ahead.job.result()
            return
        if ahead is not None:
            self._roll_back(ahead)
        self._mask = None
        self._state = self._transitions.advance(self._state, token)

    def clone(self) -> Matcher:
        """Return a matcher that goes on from here by itself, for parallel samples."""
        clone = Matcher.__new__(Matcher)
        clone.constraint, clone._transitions = self.constraint, self._transitions
        state = self._state
        grammar = None if state.grammar is None else state.grammar.deep_copy()
        clone._state = attrs.evolve(state, grammar=grammar)
        clone._mask = clone._ahead = None
        return clone

    def _compute_mask(self, state: MatcherState) -> TokenMask | None:
        if state.grammar is None:
            return self.fixed_mask(state)
        words = np.zeros(self.mask_words, np.uint32)
        state.grammar.compute_mask(words)
        check_grammar(state.grammar)
        return TokenMask(words)

    def _look_ahead(self, state: MatcherState, token: int | None) -> tuple[MatcherState, Mask]:
        """Return the state after the token, and its mask. Runs on another thread."""
        began = time.thread_time()
        if token is not None:
            state = self._transitions.advance(state, token)
        try:
            mask: Mask = self._compute_mask(state)
        except ProblemError as error:
            mask = error.problem
        self.pace.record((time.thread_time() - began) * 1e3)
        return state, mask

    def _take_mask(self, ahead: _LookAhead) -> None:
        self._ahead = None
        try:
            _, self._mask = ahead.job.result()
        except ProblemError as error:
            self._mask = error.problem

    def _roll_back(self, ahead: _LookAhead) -> None:
        """Go back before a token that was sampled anew and came out another."""
        self._ahead = None
        if ahead.token is not None and ahead.job.is_done and self._state.grammar is not None:
            self._state.grammar.rollback(1)
