"""Every generation parameter's type, range and default, in this one place (document 004)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from greenroom.schemas.problems import invalid

Overrides = Mapping[str, Any]
"""Parameters that somebody set, by field name of `GenerationParameters`; checked by `check`."""


def _parameter(
    default: Any, *, low: float | None = None, high: float | None = None, above: float | None = None
) -> Any:
    return attrs.field(default=default, metadata={"low": low, "high": high, "above": above})


@attrs.frozen
class GenerationParameters:
    """How to continue a prompt.

    Args:
        max_tokens: Tokens to generate at most; None means the protocol's default (half the context
            for chat, 16 for raw completions). More than the room left is clamped.
        temperature: 0 is greedy.
        top_p: Nucleus: the smallest set of tokens with at least this probability.
        top_k: Only the k likeliest tokens; 0 is off.
        min_p: Only tokens at least this fraction as likely as the likeliest; 0 is off.
        stop: Strings that end the answer; they are not part of it.
        stop_token_ids: Further tokens that end the answer.
    """

    max_tokens: int | None = _parameter(None, low=1)
    temperature: float = _parameter(1.0, low=0.0, high=2.0)
    top_p: float = _parameter(1.0, above=0.0, high=1.0)
    top_k: int = _parameter(0, low=0)
    min_p: float = _parameter(0.0, low=0.0, high=1.0)
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()


def check(name: str, value: Any, field: str | None = None) -> Any:
    """The value, converted to the parameter's own type.

    Args:
        name: Field of `GenerationParameters`.
        field: What the client calls it, for the error.

    Raises:
        ProblemError: 400 that names field, value and range.
    """
    bounds = attrs.fields_dict(GenerationParameters)[name].metadata
    low, high, above = bounds.get("low"), bounds.get("high"), bounds.get("above")
    too_low = (low is not None and value < low) or (above is not None and value <= above)
    if too_low or (high is not None and value > high):
        raise invalid(f"{field or name} is out of range", field or name)
    return value


def resolve(request: Overrides, settings: Overrides, model: Overrides) -> GenerationParameters:
    """Request over settings over the model's generation_config.json over the defaults."""
    return GenerationParameters(**{**model, **settings, **request})
