"""Which tokens may come next in one answer: in its thought, free text, calls and constrained part."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs
import numpy as np

from greenroom.engine.grammar.compiled_constraint import CompiledConstraint
from greenroom.engine.grammar.matcher_state import Phase, Transitions, check_grammar
from greenroom.engine.grammar.token_mask import TokenMask, allow_only


class Matcher:
    """Follows one answer under its constraint. Belongs to one thread at a time.

    The batch loop asks for a mask while the forward pass runs, samples under it, and tells the matcher
    which token was sampled.

    Attributes:
        constraint: What the answer goes through; shared with others.
    """

    def __init__(self, constraint: CompiledConstraint) -> None:
        self.constraint = constraint
        self._transitions = Transitions(constraint)
        self._state = self._transitions.start()

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

    def fixed_mask(self) -> TokenMask | None:
        """Return the mask of a phase without a grammar; None if every token may come next."""
        state, constraint = self._state, self.constraint
        if state.phase is Phase.ENDED:
            return constraint.stop_mask
        if state.phase is Phase.CLOSING:
            return allow_only([constraint.closing[state.closing_tokens]], constraint.tokenizer.mask_words)
        return None if state.trigger is None else state.trigger.mask(state.position)

    def mask(self) -> TokenMask | None:
        """Return the tokens that may come next; None if all may. `compute_masks` is for a batch.

        Raises:
            ProblemError: The grammar has become too complex to go on.
        """
        if self._state.grammar is None:
            return self.fixed_mask()
        words = np.zeros(self.mask_words, np.uint32)
        self._state.grammar.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
        check_grammar(self._state.grammar)
        return TokenMask(words)

    def accept_token(self, token: int) -> None:
        """Go on past the token that was sampled.

        Raises:
            ProblemError: The token was not allowed, or the grammar has become too complex.
        """
        self._state = self._transitions.advance(self._state, token)

    def clone(self) -> Matcher:
        """Return a matcher that goes on from here by itself, for parallel samples."""
        clone = Matcher.__new__(Matcher)
        clone.constraint, clone._transitions = self.constraint, self._transitions
        state = self._state
        grammar = None if state.grammar is None else state.grammar.deep_copy()
        clone._state = attrs.evolve(state, grammar=grammar)
        return clone
