"""What has been found out so far of which rows of a model may be computed together."""

from __future__ import annotations

import attrs

from greenroom.engine.kv_cache.batching import Batching

_UNPROVED = "not proved yet"


@attrs.frozen
class Findings:
    """Whether rows that are computed together come out as each does alone; None where nobody knows yet.

    Args:
        prefill: Prompts of unequal length, in one pass.
        decode: Sequences of unequal length, in one step.
        reason: What is wrong, if anything is.
    """

    prefill: bool | None = None
    decode: bool | None = None
    reason: str = ""

    @property
    def complete(self) -> bool:
        """Whether nothing is left to find out: what cannot be decoded together is not prefilled so."""
        return self.decode is False or (self.decode is True and self.prefill is not None)

    @property
    def batching(self) -> Batching:
        """What follows: what nobody knows is computed alone."""
        decode = self.decode is True
        reason = self.reason or ("" if self.complete else _UNPROVED)
        return Batching(decode and self.prefill is True, decode, reason)
