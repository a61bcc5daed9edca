"""The tokens of a request, in Anthropic's words."""

from __future__ import annotations

from greenroom.schemas.anthropic.answers import UsageBody
from greenroom.schemas.events import Usage


def usage_body(usage: Usage) -> UsageBody:
    """Return what a request used.

    Every prompt is kept as far as there is room: nothing is written to the cache that would count apart.
    """
    return UsageBody(
        input_tokens=usage.prompt - usage.cached,
        cache_creation_input_tokens=0,
        cache_read_input_tokens=usage.cached,
        output_tokens=usage.generated,
        output_tokens_details={"thinking_tokens": usage.reasoning},
    )
