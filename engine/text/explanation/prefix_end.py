"""The reason why a cached prefix ended, and what the end cost."""

from __future__ import annotations

from greenroom.schemas.events.explanation import PrefixEnd, PrefixEndReason, PromptDifference

FEW_TOKENS = 32
"""Shared tokens up to which nothing is lost: so few are not kept, since a copy takes as long."""


def explain_prefix_end(
    difference: PromptDifference | None,
    *,
    prompt: int,
    cached: int,
    known: int | None,
    seconds: float,
) -> PrefixEnd:
    """Return the reason why a prompt's cached prefix ended, and what that cost.

    Args:
        difference: Difference from the client's nearest earlier prompt; None if there is none.
        prompt: Number of tokens of the prompt; the last one is always computed.
        cached: Number of tokens that were not computed.
        known: Number of tokens at the beginning that the cache held, even where the model cannot continue;
            None if the request uses no cache.
        seconds: Time that the other tokens took.
    """
    computable = prompt - 1
    if difference is None:
        return PrefixEnd(_reason_alone(cached, computable, known))
    shared = min(difference.shared, computable)
    repeated = difference.repeated(cached, computable)
    figures = shared, repeated, seconds * repeated / (prompt - cached)
    lost = max(0, shared - cached)
    if known is not None and cached < computable and (difference.part is None or 2 * lost > repeated):
        reason: PrefixEndReason = "continued"
        if lost >= FEW_TOKENS:
            reason = "no_checkpoint" if known >= shared else "not_cached"
        return PrefixEnd(reason, None, None, None, *figures)
    if known is None or cached >= computable:
        return PrefixEnd(_reason_alone(cached, computable, known), None, None, None, *figures)
    return PrefixEnd("changed", difference.part, difference.index, difference.role, *figures)


def _reason_alone(cached: int, computable: int, known: int | None) -> PrefixEndReason:
    if known is None:
        return "off"
    return "whole" if cached >= computable else "first"
