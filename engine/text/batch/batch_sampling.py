"""Sampling of a batch's next tokens, with their log-probabilities."""

from __future__ import annotations

from collections.abc import Sequence as GenericSequence

import attrs
import mlx.core as mx

from greenroom.engine.text.batch.grammar_masks import apply_grammars
from greenroom.engine.text.sampling.broken_rows import mark_broken
from greenroom.engine.text.sampling.logprobs import LogprobScorer, Scored
from greenroom.engine.text.sampling.sampler import Sampler
from greenroom.engine.text.sequences.failures import SequenceFailures
from greenroom.engine.text.sequences.sequence import Sequence


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
