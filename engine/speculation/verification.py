"""Drafted tokens, and how they are held against what the model would have drawn itself."""

from __future__ import annotations

from typing import Any

import attrs
import mlx.core as mx

from greenroom.engine.sampling.logprobs import LogprobScorer, Scored
from greenroom.engine.sampling.sampler import Sampler
from greenroom.engine.sequences.sequence import Sequence


@attrs.frozen(eq=False)
class Drafts:
    """Tokens that may come next.

    Args:
        tokens: `[drafted]` (uint32), perhaps still under way.
        kind: Of the draft, as the policy tells them apart.
    """

    tokens: mx.array
    kind: int

    @property
    def count(self) -> int:
        """How many there are."""
        return int(self.tokens.shape[0])


class Verification:
    """One pass over drafted tokens: at every place the row draws as it would there, by its position's key.

    So what is accepted is what would have been drawn without drafts, for sampled rows as for greedy ones.

    Args:
        logits: `[drafted + 1, vocabulary]`, after the row's last token and after each drafted one.
    """

    def __init__(self, row: Sequence, drafts: Drafts, logits: mx.array) -> None:
        places = drafts.count + 1
        positions = [row.sampled + place for place in range(places)]
        draw = Sampler([row.sampling] * places, positions, (row,) * places, steps_ahead=1)
        self.row = row
        self.drafts = drafts
        self.scores: Scored | None = None
        self._drawn = draw(logits)
        mx.async_eval(self._drawn, drafts.tokens)
        if row.logprobs is not None:
            scorer = LogprobScorer(dict.fromkeys(range(places), row.logprobs.top), places)
            self.scores = scorer, scorer.score(scorer.prepare(logits), self._drawn)
            mx.async_eval(self.scores[1])

    def tokens(self) -> list[int]:
        """The drafted tokens that were drawn, and the one drawn after them. Waits."""
        drawn: Any = self._drawn.tolist()
        drafted: Any = self.drafts.tokens.tolist()
        accepted = 0
        while accepted < len(drafted) and drafted[accepted] == drawn[accepted]:
            accepted += 1
        return list(drawn[: accepted + 1])


def can_verify(row: Sequence) -> bool:
    """Whether what a row may draw does not depend on tokens that are only drafted."""
    return row.matcher is None and not row.sampling.has_penalties
