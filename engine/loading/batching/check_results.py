"""Results so far of a model's batch-invariance check."""

from __future__ import annotations

import attrs

from greenroom.engine.kv_cache.batching import Batching

_UNPROVED = "not proved yet"


@attrs.frozen
class CheckResults:
    """Results of a check whether batched rows match rows computed alone; None where unknown.

    Args:
        prefill: Whether prompts of unequal length may be prefilled in one pass.
        decode: Whether sequences of unequal length may be decoded in one step.
        reason: Description of the fault, if there is one.
    """

    prefill: bool | None = None
    decode: bool | None = None
    reason: str = ""

    @property
    def complete(self) -> bool:
        """True if nothing is left to check; without batched decode there is no batched prefill either."""
        return self.decode is False or (self.decode is True and self.prefill is not None)

    @property
    def batching(self) -> Batching:
        """Kinds of batching that the check has found correct; what it has not checked yet is not batched."""
        decode = self.decode is True
        reason = self.reason or ("" if self.complete else _UNPROVED)
        return Batching(decode and self.prefill is True, decode, reason)
