"""Defaults for generation parameters that a request does not set."""

from __future__ import annotations

import attrs

from greenroom.schemas.settings.setting_fields import generation_default


@attrs.frozen(slots=False)
class GenerationDefaults:
    """Defaults for generation parameters that a request does not set."""

    temperature: float | None = generation_default(
        "temperature", "Randomness of answers; 0 is greedy (default: the model's own)."
    )
    top_p: float | None = generation_default(
        "top_p", "Sample from the smallest set of tokens with this probability (default: the model's own)."
    )
    top_k: int | None = generation_default(
        "top_k", "Sample from the k likeliest tokens; 0 is off (default: the model's own)."
    )
    min_p: float | None = generation_default(
        "min_p",
        "Sample from tokens at least this fraction as likely as the likeliest (default: the model's own).",
    )
    max_tokens: int | None = generation_default(
        "max_tokens", "Longest answer, in tokens (default: half the context for chat)."
    )
