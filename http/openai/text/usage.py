"""Token usage in OpenAI's format."""

from __future__ import annotations

from collections.abc import Iterable

from greenroom.http.answering.explanation_body import explanation_of
from greenroom.schemas.events.events import Finished
from greenroom.schemas.openai.answers import UsageBody


def usage_body(finished: Iterable[Finished], choices: int) -> UsageBody:
    """Return the token usage of a request, summed over its prompts.

    Args:
        finished: Final events of all its choices.
        choices: Number of choices per prompt; each prompt counts once.
    """
    finished = list(finished)
    usages = [event.usage for event in finished]
    prompts = [event.usage for event in finished if event.index % choices == 0]
    prompt, generated = sum(usage.prompt for usage in prompts), sum(usage.generated for usage in usages)
    return UsageBody(
        prompt_tokens=prompt,
        completion_tokens=generated,
        total_tokens=prompt + generated,
        prompt_tokens_details={
            "cached_tokens": sum(usage.cached for usage in prompts),
            "cache_write_tokens": sum(usage.written for usage in prompts),
            "audio_tokens": 0,
            "image_tokens": sum(usage.images for usage in prompts),
        },
        completion_tokens_details={
            "reasoning_tokens": sum(usage.reasoning for usage in usages),
            "audio_tokens": 0,
            "accepted_prediction_tokens": sum(usage.accepted for usage in usages),
            "rejected_prediction_tokens": sum(usage.drafted - usage.accepted for usage in usages),
        },
        greenroom=explanation_of(finished, choices),
    )
