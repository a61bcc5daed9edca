"""Token usage in Anthropic's format."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs

from greenroom.http.answering.explanation_body import explanation_body
from greenroom.schemas.anthropic.answers import UsageBody
from greenroom.schemas.events.events import Finished, Usage
from greenroom.schemas.messages.messages import JsonObject


def usage_members(finished: Finished, *, asked_to_cache: bool = False) -> dict[str, Any]:
    """Return the usage of a complete answer as a JSON-like object, with its explanation if there is one."""
    members = attrs.asdict(usage_body(finished.usage, asked_to_cache=asked_to_cache))
    if finished.explanation is None:
        return members
    return {**members, "greenroom": explanation_body(finished.explanation)}


def usage_body(usage: Usage, *, asked_to_cache: bool = False) -> UsageBody:
    """Return the token usage of a request, with prompt tokens split into input, cache writes and cache reads.

    Args:
        asked_to_cache: True if the client set `cache_control` anywhere. Prompts are always cached, but other
            clients see all computed tokens as input.
    """
    written = usage.written if asked_to_cache else 0
    return UsageBody(
        input_tokens=usage.prompt - usage.cached - written,
        cache_creation_input_tokens=written,
        cache_read_input_tokens=usage.cached,
        output_tokens=usage.generated,
        output_tokens_details={"thinking_tokens": usage.reasoning},
    )


def asks_to_cache(body: JsonObject) -> bool:
    """Return whether a request sets `cache_control`, at the top level or in any block."""
    return any(each.get("cache_control") is not None for each in (body, *_blocks(body)))


def _blocks(body: JsonObject) -> Iterator[JsonObject]:
    waiting: list[Any] = [body.get("tools"), body.get("system"), body.get("messages")]
    while waiting:
        listed = waiting.pop()
        for block in listed if isinstance(listed, list) else ():
            if isinstance(block, dict):
                yield block
                waiting.append(block.get("content"))
