"""Whether and how much to think, in no protocol's and no template's words."""

from __future__ import annotations

from typing import Literal

import attrs

Effort = Literal["minimal", "low", "medium", "high", "xhigh", "max"]

EFFORTS: tuple[Effort, ...] = ("minimal", "low", "medium", "high", "xhigh", "max")
"""From the least to the most. `none`, which clients send as an effort too, is no thought at all."""


def effort_named(value: object) -> Effort | None:
    """Return the effort of that name; None if there is none, or the value is no name."""
    return next((effort for effort in EFFORTS if effort == value), None)


@attrs.frozen
class Thinking:
    """What a client asks of the model's thoughts; None leaves a thing to the model's template.

    Args:
        enabled: Think, or do not.
        effort: How much.
        preserved: Thoughts of earlier turns are shown to the model again.
    """

    enabled: bool | None = None
    effort: Effort | None = None
    preserved: bool | None = None
