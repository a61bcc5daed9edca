"""Decode steps of a batch: forward pass, grammar masks, sampling and drafts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Sequence as GenericSequence
from typing import TYPE_CHECKING, Any

import attrs
import mlx.core as mx

from greenroom.engine.kv_cache import caches
from greenroom.engine.lora.layers import adapted_rows
from greenroom.engine.text.batch_cache import BatchCache
from greenroom.engine.text.drafters import Verification
from greenroom.engine.text.sampler import LogprobScorer, Sampler, Scored, Scores
from greenroom.engine.text.sampling_parameters import mark_broken, split_marks
from greenroom.engine.text.sequence import Sequence, SequenceFailures
from greenroom.engine.text.speculation import Speculation

if TYPE_CHECKING:
    from greenroom.engine.grammar.masks import MaskLatency


_EVALUATE_STEPS = 64
"""Steps between evaluations of cache counters that no layer reads, so that their graph stays small."""


class DecodeStep:
    """Launches forward passes, reads the tokens of the previous step and samples the next ones.

    Args:
        model: Model, called as `model(tokens, cache=…)` with tokens of shape `[rows, 1]`; returns logits
            `[rows, 1, vocabulary]`. `position_shifts` are passed by row if position ids differ from cache
            indices.
        cache: KV cache; its sequences may change only between `finish_verification` and `launch`.
    """

    def __init__(self, model: Any, cache: BatchCache) -> None:
        self._model = model
        self._cache = cache
        self._sampling = BatchSampling()
        self._drafting = Drafting(cache)
        self._logits: mx.array | None = None
        self._sampled: Sampled | None = None
        self._pending: PendingTokens | None = None
        self._moved: tuple[Sequence, ...] = ()
        self._steps = 0

    @property
    def has_pending(self) -> bool:
        return self._pending is not None

    @property
    def is_waiting(self) -> bool:
        """True while the launched step waits for a grammar mask; until then rows must not change."""
        return self._logits is not None

    @property
    def is_verifying(self) -> bool:
        return self._drafting.is_verifying

    def finish_verification(self) -> bool:
        """Wait for the tokens that verify drafts; return whether there were any.

        The cache may then be shorter than after the last step.
        """
        pending = self._drafting.pop_accepted()
        if pending is None:
            return False
        self._pending = pending
        self._sampling.invalidate()
        return True

    def invalidate(self) -> None:
        """Discard the sampler after rows were added or compacted."""
        self._sampling.invalidate()

    def move(self, sequences: GenericSequence[Sequence]) -> None:
        """Mark sequences as moved: their tokens in flight are read here without awaiting their grammars."""
        self._moved = (*self._moved, *sequences)

    def discard_pending(self, sequence: Sequence) -> None:
        """Discard the token in flight of a preempted sequence."""
        if self._pending is not None:
            self._pending.discard(sequence)

    def launch(self, speculation: Speculation | None) -> int:
        """Launch the forward pass for all rows; call `finish_verification` first.

        Returns:
            Tokens added to every row of the cache; 0 if a step still waits for a grammar mask.
        """
        cache = self._cache
        if self.is_waiting or cache.active == 0 or self._has_sampled_last():
            return 0
        inputs = cache.inputs[:, None]
        drafted = self._drafting.draft(speculation, self._pending)
        if drafted is not None:
            inputs = mx.concatenate([inputs, drafted[None]], axis=1)
            self._logits = self._forward(inputs)[0]
            mx.async_eval(self._logits)
        else:
            self._logits = self._forward(inputs)[:, -1, :]
            if needs_host(cache.sequences):
                mx.async_eval(self._logits)
            else:
                self._sampled, _ = self._sampling.sample(self._logits, cache.sequences)
        cache.has_inputs = True
        self._steps += 1
        if self._steps % _EVALUATE_STEPS == 0:
            mx.async_eval(caches.state(cache.layers))
        return inputs.shape[1]

    def _forward(self, inputs: mx.array) -> mx.array:
        shifts = self._cache.position_shifts
        added = {"position_shifts": shifts} if shifts else {}
        with adapted_rows(self._cache.sequences):
            logits: mx.array = self._model(inputs, cache=self._cache.layers, **added)
        return logits

    def read(self) -> Iterator[tuple[Sequence, int | None]]:
        """Yield the tokens that the last step sampled, with their sequences; the only wait in a step.

        A token of None was sampled from logits that are not finite: its sequence must end. Yields nothing
        while another thread computes the mask of a slow grammar for one of the tokens.
        """
        pending = self._pending
        if pending is None:
            return
        tokens = self._drafting.await_tokens(pending)
        waited_for = [
            None if index in pending.broken or sequence in self._moved else sequence
            for index, sequence in enumerate(pending.sequences)
        ]
        if not prepare_masks(waited_for, tokens):
            return
        self._pending, self._moved = None, ()
        scores = pending.await_scores()
        for index, (sequence, token) in enumerate(zip(pending.sequences, tokens, strict=True)):
            if sequence is not None and not sequence.finished:
                if index in pending.broken:
                    yield sequence, None
                    continue
                if sequence.logprobs is not None and index in scores:
                    sequence.logprobs.set_scores(scores[index])
                if index < pending.accepted:
                    sequence.metrics.accepted_tokens += 1
                is_last = index > 0 and index == len(tokens) - 1
                if is_last and sequence is self._cache.sequences[0] and self._has_sampled_last():
                    self._cache.remove(0)
                yield sequence, token

    def sample(self) -> SequenceFailures:
        """Sample the next tokens from the logits of `launch`; remove sequences that reach their token limit.

        Does nothing until the masks of slow grammars are ready.

        Returns:
            Sequences that failed; their tokens must not be read.
        """
        cache = self._cache
        if not (self._are_tokens_read() and prepare_masks(cache.sequences)):
            return []
        logits, self._logits = self._logits, None
        sampled, self._sampled = self._sampled, None
        cache.has_inputs = False
        if logits is None:
            return []
        if self._drafting.is_verifying:
            self._drafting.verify(logits)
            return []
        if cache.active == 0:
            return []
        failures: SequenceFailures = []
        if sampled is None:
            sampled, failures = self._sampling.sample(logits, cache.sequences)
        cache.inputs = sampled.tokens
        self._pending = PendingTokens(sampled.marked, tuple(cache.sequences), sampled.scored)
        for row, sequence in enumerate(cache.sequences):
            if sequence is not None:
                sequence.sampled += 1
                if sequence.sampled >= sequence.max_tokens:
                    cache.remove(row)
        return failures

    def _are_tokens_read(self) -> bool:
        """Return whether every grammar has received all sampled tokens."""
        return not any(
            sequence is not None and sequence.matcher is not None and sequence.generated < sequence.sampled
            for sequence in self._cache.sequences
        )

    def _has_sampled_last(self) -> bool:
        sequences = self._cache.sequences
        sequence = sequences[0] if len(sequences) == 1 else None
        return sequence is not None and sequence.sampled >= sequence.max_tokens


@attrs.define(eq=False)
class PendingTokens:
    """One token for each row of a batch, or several of a lone sequence.

    Args:
        tokens: Tokens `[tokens]`, marked if their logits were not finite (`mark_broken`); a list once on the
            host.
        sequences: Sequence of each token; None if the token is not to be read.
        accepted: Number of leading tokens that are accepted drafts.
        broken: Indices of tokens sampled from non-finite logits; known once the tokens are on the host.
    """

    tokens: mx.array | list[int]
    sequences: tuple[Sequence | None, ...]
    scored: Scored | None = None
    accepted: int = 0
    broken: frozenset[int] = frozenset()

    @property
    def in_flight(self) -> bool:
        """True until the tokens have been awaited."""
        return isinstance(self.tokens, mx.array)

    def await_tokens(self) -> list[int]:
        tokens: Any = self.tokens
        if self.in_flight:
            tokens, self.broken = split_marks(tokens.tolist())
            self.tokens = tokens
        values: list[int] = tokens
        return values

    def await_scores(self) -> dict[int, Scores]:
        """Wait for the log-probabilities and return them by token index."""
        if self.scored is None:
            return {}
        scorer, scores = self.scored
        return scorer.by_row(scores)

    def discard(self, sequence: Sequence) -> None:
        """Discard the token of a preempted sequence, which will be sampled again."""
        self.sequences = tuple(None if member is sequence else member for member in self.sequences)


@attrs.frozen(eq=False)
class Sampled:
    """Sampled tokens in flight, by row.

    Args:
        tokens: Input of the next step, `[rows]` (uint32).
        marked: The same tokens for the host, marked if the row's logits are not finite (`mark_broken`).
        scored: Log-probabilities of the rows that requested them.
    """

    tokens: mx.array
    marked: mx.array
    scored: Scored | None


class BatchSampling:
    """Samples for a batch and reuses the sampler while its rows stay the same."""

    def __init__(self) -> None:
        self._sampler: Sampler | None = None
        self._scorer: LogprobScorer | None = None

    def invalidate(self) -> None:
        """Discard the sampler: rows were added or compacted, or tokens were sampled elsewhere."""
        self._sampler = None

    def sample(
        self, logits: mx.array, sequences: GenericSequence[Sequence | None]
    ) -> tuple[Sampled, SequenceFailures]:
        """Launch sampling from logits `[rows, vocabulary]`; return the tokens and failed sequences."""
        sampler = self._sampler
        if sampler is None or sampler.is_stale:
            sampler = self._make_sampler(sequences)
        scorer = self._scorer
        prepared = None if scorer is None else scorer.prepare(logits)
        allowed, failures = apply_grammars(logits, sequences)
        tokens = sampler(allowed)
        marked = mark_broken(tokens, logits)
        mx.async_eval(tokens, marked)
        if scorer is None or prepared is None:
            return Sampled(tokens, marked, None), failures
        scores = scorer.score(prepared, tokens)
        mx.async_eval(scores)
        return Sampled(tokens, marked, (scorer, scores)), failures

    def _make_sampler(self, sequences: GenericSequence[Sequence | None]) -> Sampler:
        self._sampler = Sampler(
            [sequence.sampling if sequence else Sampler.IDLE for sequence in sequences],
            [sequence.sampled if sequence else 0 for sequence in sequences],
            tuple(sequences),
        )
        wanted = {
            row: sequence.logprobs.top
            for row, sequence in enumerate(sequences)
            if sequence and sequence.logprobs is not None
        }
        self._scorer = LogprobScorer(wanted, len(sequences)) if wanted else None
        return self._sampler


def needs_host(sequences: GenericSequence[Sequence | None]) -> bool:
    """Return whether sampling depends on the previous tokens having been read by the host.

    If not, sampling is launched together with the forward pass, in one evaluation instead of two.
    """
    # A generator would take three times as long, at every step.
    for sequence in sequences:
        if sequence is not None and (sequence.matcher is not None or sequence.sampling.has_penalties):
            return True
    return False


def common_slow_grammar(sequences: Iterable[Sequence]) -> MaskLatency | None:
    """Return the mask latency of the slow grammar that all these sequences share; None if they share none."""
    grammars = {sequence.slow_grammar for sequence in sequences}
    return grammars.pop() if len(grammars) == 1 else None


def prepare_masks(
    sequences: GenericSequence[Sequence | None], tokens: GenericSequence[int] | None = None
) -> bool:
    """Start computing slow masks on other threads; return whether all masks are ready. `tokens`: next token
    of each sequence, not yet accepted by its grammar; None if all are accepted.
    """
    are_there = True
    for index, sequence in enumerate(sequences):
        if sequence is not None and sequence.matcher is not None and not sequence.finished:
            are_there &= sequence.matcher.prepare(None if tokens is None else tokens[index])
    return are_there


def apply_grammars(
    logits: mx.array, sequences: GenericSequence[Sequence | None]
) -> tuple[mx.array, SequenceFailures]:
    """Mask logits `[rows, vocabulary]` so that tokens forbidden by a grammar cannot be sampled.

    The host computes the masks while the forward pass for the logits is in flight.
    """
    matchers = {
        row: sequence.matcher
        for row, sequence in enumerate(sequences)
        if sequence is not None and sequence.matcher is not None
    }
    if not matchers:
        return logits, []
    from greenroom.engine.grammar.masks import TokenMask
    from greenroom.engine.grammar.matcher import apply_masks, compute_masks

    masks: dict[int, TokenMask] = {}
    failures: SequenceFailures = []
    for row, mask in compute_masks(matchers).items():
        sequence = sequences[row]
        if isinstance(mask, TokenMask):
            masks[row] = mask
        elif sequence is not None:
            failures.append((sequence, mask))
    return (apply_masks(logits, masks) if masks else logits), failures


class Drafting:
    """Drafts of successive steps: `draft`, `verify`, then `pop_accepted` before the next step. `cache`: KV
    cache of the sequence; other sequences may share it while nothing is drafted.
    """

    def __init__(self, cache: BatchCache) -> None:
        self._cache = cache
        self._speculation: Speculation | None = None
        self._drafts: mx.array | None = None
        self._verification: Verification | None = None

    @property
    def is_verifying(self) -> bool:
        return self._drafts is not None

    def draft(self, speculation: Speculation | None, pending: PendingTokens | None) -> mx.array | None:
        """Return draft tokens to follow the next input, `[drafted]` (uint32); None for a plain step.

        Args:
            speculation: Proposes and measures drafts; None while the sequence is not alone.
            pending: Tokens not yet read; awaited only if drafts are worth it.
        """
        self._speculation = speculation
        if speculation is None:
            return None
        (sequence,) = self._cache.sequences
        if sequence is None or not caches.can_trim(self._cache.layers):
            return None
        in_flight = pending is not None and pending.in_flight
        self._drafts = speculation.propose(sequence, lambda: self.await_tokens(pending), in_flight)
        return self._drafts

    def await_tokens(self, pending: PendingTokens | None) -> list[int]:
        """Return the tokens as soon as they are computed, and record that the step has ended."""
        if pending is None:
            return []
        arrives = pending.in_flight
        tokens = pending.await_tokens()
        if arrives and self._speculation is not None:
            self._speculation.record_step()
        return tokens

    def verify(self, logits: mx.array) -> None:
        """Launch sampling at every draft position, unless the sequence was removed meanwhile. `logits`:
        logits of the step, `[drafted + 1, vocabulary]`.
        """
        (sequence,) = self._cache.sequences
        drafts, self._drafts = self._drafts, None
        if sequence is not None and drafts is not None:
            self._verification = Verification(sequence, drafts, logits)

    def pop_accepted(self) -> PendingTokens | None:
        """Wait for the verification that `verify` launched, and trim rejected drafts from the cache.

        Returns:
            The sequence's next tokens; None if nothing was launched.
        """
        verification, self._verification = self._verification, None
        if verification is None:
            return None
        sequence, drafted, tokens = verification.sequence, verification.drafts.shape[0], verification.tokens()
        accepted = len(tokens) - 1
        if self._speculation is not None:
            self._speculation.record_verified(drafted, accepted)
        sequence.metrics.drafted_tokens += drafted
        sequence.sampled += len(tokens)
        caches.trim(self._cache.layers, drafted - accepted)
        self._cache.inputs = mx.array(tokens[-1:], dtype=mx.uint32)
        sequences = (sequence,) * len(tokens)
        return PendingTokens(tokens, sequences, verification.scores, accepted, verification.broken)
