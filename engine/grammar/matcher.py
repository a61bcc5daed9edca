"""Token masks of one answer (its reasoning, free text, calls and constrained parts), and of a batch."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import Any

import attrs
import numpy as np

from greenroom.engine.grammar.c_interface import GrammarMatcher
from greenroom.engine.grammar.masks import Job, MaskLatency, TokenMask, allow_only, grammar_threads
from greenroom.engine.grammar.matcher_state import (
    CompiledConstraint,
    MatcherState,
    Phase,
    Transitions,
    check_grammar,
)
from greenroom.schemas.problems import Problem, ProblemError

Mask = TokenMask | Problem | None
"""The tokens allowed next, or the problem that allows none; None if all are allowed."""


@attrs.frozen(eq=False)
class _LookAhead:
    """The state after a token, and its mask, computed on another thread; the mask alone without a token."""

    token: int | None
    job: Job


class Matcher:
    """Tracks one answer under its constraint. Used on one thread at a time.

    The batch loop requests a mask during the forward pass, samples under it, and passes the sampled token to
    the matcher. If masks are slow, another thread prepares each of them.

    Attributes:
        constraint: Compiled constraint, shared with other answers.
    """

    def __init__(self, constraint: CompiledConstraint) -> None:
        self.constraint = constraint
        self._transitions = Transitions(constraint)
        self._state = self._transitions.start()
        self._mask: Mask = None
        self._ahead: _LookAhead | None = None

    @property
    def phase(self) -> Phase:
        return self._state.phase

    @property
    def is_accepting(self) -> bool:
        """True if the text so far is a complete answer."""
        state = self._state
        if state.phase in (Phase.ANSWER, Phase.OPENING):
            return bool(state.grammar.is_accepting())
        if state.phase in (Phase.FREE, Phase.ENDED):
            return True
        return state.phase is Phase.REASONING and self.constraint.answer is None

    @property
    def is_terminated(self) -> bool:
        """True if only the end may follow, so that the sequence can finish without another step."""
        return self._state.phase is Phase.ENDED

    @property
    def stoppable(self) -> bool:
        """True if a client's stop string or stop token may end the answer here."""
        constrained = (Phase.ANSWER, Phase.OPENING, Phase.CALL, Phase.CLOSING)
        return self._state.phase not in constrained and self.is_accepting

    @property
    def constrains_answer(self) -> bool:
        """True if the whole visible answer follows a grammar."""
        return self.constraint.answer is not None

    @property
    def constrains_calls(self) -> bool:
        """True if all tool calls follow a grammar, so that none can be malformed."""
        return self.constraint.answer is not None or bool(self.constraint.calls)

    @property
    def allows_reasoning(self) -> bool:
        return self.constraint.reasoning is not None

    @property
    def mask_words(self) -> int:
        """Length of a mask in words of 32 tokens."""
        return self.constraint.tokenizer.mask_words

    @property
    def grammar(self) -> Any:
        """llguidance matcher that computes the next mask; None if the mask is `fixed_mask`."""
        return self._state.grammar

    def is_stop_token(self, token: int) -> bool:
        """Return whether the token ends an answer by itself."""
        return token in self.constraint.tokenizer.stop_token_ids

    def suppressible(self, end_tokens: Iterable[int]) -> tuple[int, ...]:
        """Return the end tokens that can be suppressed without leaving any step without an allowed token."""
        return () if self.constrains_answer else tuple(filter(self.is_stop_token, end_tokens))

    def fixed_mask(self, state: MatcherState | None = None) -> TokenMask | None:
        """Return the mask of a phase without a grammar; None if every token is allowed."""
        state, constraint = state or self._state, self.constraint
        if state.phase is Phase.ENDED:
            return constraint.stop_mask
        if state.phase is Phase.CLOSING:
            return allow_only([constraint.closing[state.closing_tokens]], constraint.tokenizer.mask_words)
        return None if state.trigger is None else state.trigger.mask(state.position)

    @property
    def mask_latency(self) -> MaskLatency:
        return self.constraint.mask_latency

    @property
    def known_mask(self) -> Mask:
        """Next mask, if it has been computed."""
        return self._mask

    def keep_mask(self, mask: Mask) -> None:
        """Keep the next mask, so that a preempted sequence can reuse it for pending tokens."""
        self._mask = mask

    def mask(self) -> TokenMask | None:
        """Return the tokens allowed next; None if all are. Use `compute_masks` for a batch. Raises
        ProblemError: the grammar has become too complex to continue.
        """
        return self._compute_mask(self._state)

    def prepare(self, token: int | None = None) -> bool:
        """Prepare the next mask on another thread if it is likely slow; return whether it is available.
        `token`: token that `accept_token` will receive; None for the mask of the current state.
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
            if not self.mask_latency.is_slow or self._state.grammar is None or (token is None and self._mask):
                return True
            job = self.mask_latency.start(partial(self._look_ahead, self._state, token))
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
        """Advance past the sampled token. Raises ProblemError: the token was not allowed, or the grammar has
        become too complex.
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
        """Return an independent copy of the matcher, for parallel samples."""
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
        self.mask_latency.record((time.thread_time() - began) * 1e3)
        return state, mask

    def _take_mask(self, ahead: _LookAhead) -> None:
        self._ahead = None
        try:
            _, self._mask = ahead.job.result()
        except ProblemError as error:
            self._mask = error.problem

    def _roll_back(self, ahead: _LookAhead) -> None:
        """Undo a token that was sampled again with a different result; no grammar takes a stop token."""
        self._ahead = None
        taken = ahead.token is not None and not self.is_stop_token(ahead.token)
        if taken and ahead.job.is_done and self._state.grammar is not None:
            self._state.grammar.rollback(1)


# Token masks of a batch, computed on the host during the forward pass and applied with plain MLX.
#
# llguidance's own MLX kernel needs Metal; this code runs on any device.

_THREADS = max(1, min(32, (os.cpu_count() or 1) * 4 // 5))


@cache
def _executor() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="greenroom-masks")


def compute_masks(matchers: Mapping[int, Matcher]) -> dict[int, TokenMask | Problem]:
    """Compute the masks of a batch's constrained rows. Releases the GIL while it computes.

    Returns:
        Mask of each row, or the problem that stops its grammar. Unconstrained rows are missing.
    """
    masks: dict[int, TokenMask | Problem] = {}
    unknown: dict[int, Matcher] = {}
    for row, matcher in matchers.items():
        mask = matcher.fixed_mask() if matcher.grammar is None else matcher.known_mask
        if mask is not None:
            masks[row] = mask
        elif matcher.grammar is not None:
            unknown[row] = matcher
    together = {row: matcher for row, matcher in unknown.items() if not matcher.mask_latency.is_suspect}
    for row, matcher in unknown.items():
        if len(together) == 1 or row not in together:
            masks[row] = _compute_timed(matcher)
    if len(together) > 1:
        masks |= _compute_together(together)
    return masks


def _compute_timed(matcher: Matcher) -> TokenMask | Problem:
    began = time.thread_time()
    mask = _compute([matcher])[0]
    matcher.mask_latency.record((time.thread_time() - began) * 1e3)
    return mask


def _compute_together(matchers: Mapping[int, Matcher]) -> dict[int, TokenMask | Problem]:
    """Compute masks in parallel; if that takes long, each is timed alone in the next step."""
    began = time.perf_counter()
    masks = dict(zip(matchers, _compute([*matchers.values()]), strict=True))
    milliseconds = (time.perf_counter() - began) * 1e3
    for matcher in matchers.values():
        matcher.mask_latency.suspect(milliseconds)
    return masks


def _compute(matchers: Sequence[Matcher]) -> list[TokenMask | Problem]:
    words = np.zeros((len(matchers), matchers[0].mask_words), np.uint32)
    if len(matchers) == 1 or _THREADS == 1:
        for matcher, bits in zip(matchers, words, strict=True):
            matcher.grammar.compute_mask(bits)
    else:
        grammars = [matcher.grammar for matcher in matchers]
        deque(_executor().map(GrammarMatcher.compute_mask, grammars, words), 0)
    masks: list[TokenMask | Problem] = []
    for matcher, bits in zip(matchers, words, strict=True):
        try:
            check_grammar(matcher.grammar)
            masks.append(TokenMask(bits))
        except ProblemError as error:
            masks.append(error.problem)
        matcher.keep_mask(masks[-1])
    return masks


def apply_masks(logits: Any, masks: Mapping[int, TokenMask]) -> Any:
    """Return logits `[rows, vocabulary]` with -inf for the tokens that a row's mask forbids. Lazy.

    Rows without a mask keep their logits and are left untouched if they are the majority.
    """
    import mlx.core as mx

    rows, width = logits.shape
    if 2 * len(masks) > rows:
        free = mx.ones((width,), mx.bool_)
        allowed = [masks[row].dense(width) if row in masks else free for row in range(rows)]
        return mx.where(mx.stack(allowed), logits, -mx.inf)
    for row, mask in masks.items():
        logits[row] = mx.where(mask.dense(width), logits[row], -mx.inf)
    return logits
