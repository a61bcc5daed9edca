"""Timing figures in the format of llama.cpp's server.

Source: its `timings` object; the values are those of the answer's statistics.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from greenroom.schemas.events.events import Finished
from greenroom.schemas.openai.answers import Timings


def timings(finished: Sequence[Finished], choices: int) -> Timings:
    """Return the timings of a request whose choices were generated concurrently.

    Args:
        finished: Final events of all its choices.
        choices: Number of choices per prompt; each prompt counts once.
    """
    prompts = [event for event in finished if event.index % choices == 0]
    cached = sum(event.usage.cached for event in prompts)
    computed = sum(event.usage.prompt for event in prompts) - cached
    generated = sum(event.usage.generated for event in finished)
    prefill = max(event.timing.prefill for event in finished)
    decode = max(event.timing.decode for event in finished)
    total = max(sum(attrs.astuple(event.timing)) for event in finished)
    return Timings(
        cache_n=cached,
        prompt_n=computed,
        prompt_ms=_milliseconds(prefill),
        prompt_per_token_ms=_ratio(prefill * 1e3, computed),
        prompt_per_second=_ratio(computed, prefill),
        predicted_n=generated,
        predicted_ms=_milliseconds(decode),
        predicted_per_token_ms=_ratio(decode * 1e3, generated),
        predicted_per_second=_ratio(generated, decode),
        queued_ms=_milliseconds(min(event.timing.queued for event in finished)),
        total_ms=_milliseconds(total),
    )


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1e3, 3)


def _ratio(amount: float, by: float) -> float:
    return round(amount / by, 3) if by else 0.0
