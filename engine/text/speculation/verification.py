"""Verification of draft tokens against the target model's own samples."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from greenroom.engine.text.sampling.broken_rows import mark_broken, split_marks
from greenroom.engine.text.sampling.logprobs import LogprobScorer, Scored
from greenroom.engine.text.sampling.sampler import Sampler
from greenroom.engine.text.sequences.sequence import Sequence


class Verification:
    """Pass over draft tokens that samples at every position exactly as plain steps would, with the same keys.

    So the accepted tokens are those that would have been sampled without drafts, greedily or not.

    Args:
        drafts: Draft tokens, `[drafted]` (uint32), possibly in flight.
        logits: Logits after the sequence's last token and after each draft token, `[drafted + 1,
            vocabulary]`.

    Attributes:
        broken: Positions with non-finite logits, set by `tokens`.
    """

    def __init__(self, sequence: Sequence, drafts: mx.array, logits: mx.array) -> None:
        places = drafts.shape[0] + 1
        positions = [sequence.sampled + place for place in range(places)]
        sample = Sampler([sequence.sampling] * places, positions, (sequence,) * places, steps_ahead=1)
        self.sequence = sequence
        self.drafts = drafts
        self.scores: Scored | None = None
        self._sampled = sample(logits)
        self._marked = mark_broken(self._sampled, logits)
        self.broken: frozenset[int] = frozenset()
        mx.async_eval(self._marked, drafts)
        if sequence.logprobs is not None:
            scorer = LogprobScorer(dict.fromkeys(range(places), sequence.logprobs.top), places)
            self.scores = scorer, scorer.score(scorer.prepare(logits), self._sampled)
            mx.async_eval(self.scores[1])

    def tokens(self) -> list[int]:
        """Wait for the samples; return the accepted draft tokens and the token sampled after them."""
        marked: Any = self._marked.tolist()
        sampled, self.broken = split_marks(marked)
        drafted: Any = self.drafts.tolist()
        accepted = 0
        while accepted < len(drafted) and drafted[accepted] == sampled[accepted]:
            accepted += 1
        return sampled[: accepted + 1]


def can_verify(sequence: Sequence) -> bool:
    """Return whether a sequence's sampling is independent of unverified draft tokens."""
    return sequence.matcher is None and not sequence.sampling.has_penalties
