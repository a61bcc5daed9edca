"""Reasoning settings of a request, independent of protocols and templates."""

from __future__ import annotations

from typing import Literal

import attrs

Effort = Literal["minimal", "low", "medium", "high", "xhigh", "max"]

EFFORTS: tuple[Effort, ...] = ("minimal", "low", "medium", "high", "xhigh", "max")
"""All efforts, in ascending order. Clients also send `none`, which turns reasoning off."""


def effort_named(value: object) -> Effort | None:
    """Return the effort with this name; None if there is no such effort."""
    return next((effort for effort in EFFORTS if effort == value), None)


@attrs.frozen
class ReasoningSettings:
    """The client's reasoning settings; None leaves a setting to the model's template.

    Args:
        enabled: True to reason, False not to.
        effort: Reasoning effort.
        preserved: True to show the model its reasoning from earlier turns.
    """

    enabled: bool | None = None
    effort: Effort | None = None
    preserved: bool | None = None
