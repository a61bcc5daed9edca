"""Selection of the oldest turns to drop so that the rest of a conversation fits the context.

A client sends its whole conversation each time. Dropping just enough would make every prompt start at another
turn, and the prefix cache would match only the system message. So cuts lie on a grid that depends on the
start of the conversation alone: as it grows, its cut stays until a whole step more must go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from greenroom.engine.adapters.conversation.rendered_images import RenderedImage
from greenroom.schemas.messages.messages import Message

T = TypeVar("T")

_BYTES_OF_MARKS = 32
"""Estimated size of the markup around a message, in bytes."""
_BYTES_OF_TOKEN = 4
"""Estimated size of a token in bytes of text; images have only tokens."""


def turn_starts(messages: Sequence[Message]) -> list[int]:
    """Return the indices of user messages where a shortened conversation may start.

    No such start separates a call from its result. The last one is the start of the last turn, which
    always stays.
    """
    last_results: dict[int, int] = {}
    callers: dict[str | None, int] = {}
    for at, message in enumerate(messages):
        callers.update((call.id, at) for call in message.tool_calls)
        if message.role == "tool" and message.tool_call_id in callers:
            last_results[callers[message.tool_call_id]] = at
    starts = []
    answered_until, begun = -1, False
    for at, message in enumerate(messages):
        if message.role == "user" and begun and answered_until < at:
            starts.append(at)
        begun = begun or message.role != "system"
        answered_until = max(answered_until, last_results.get(at, -1))
    return starts


def without_oldest(messages: Sequence[Message], start: int) -> tuple[Message, ...]:
    """Return a conversation from `start` on, with the system messages before it."""
    system = (message for message in messages[:start] if message.role == "system")
    return (*system, *messages[start:])


def starts_on_grid(messages: Sequence[Message], starts: Sequence[int], step: int) -> list[int]:
    """Return the starts at which the dropped text first exceeds a multiple of `step` bytes of UTF-8."""
    on_grid = []
    dropped, due, at = 0, step, 0
    for start in starts:
        dropped += sum(_size(message) for message in messages[at:start])
        at = start
        if dropped >= due:
            on_grid.append(start)
            due = (dropped // step + 1) * step
    return on_grid


def first_fitting(starts: Sequence[int], attempt: Callable[[int], T | None]) -> T | None:
    """Return the result of `attempt` for the earliest start that fits; None if none fits.

    Searches from the end with doubling strides, then by bisection, so that no attempt is much larger than the
    result, however long the conversation is.

    Args:
        starts: Possible starts, in ascending order.
        attempt: Function that returns None if the conversation does not fit from a start.
    """
    too_early, fits, found = -1, len(starts), None
    stride = 1
    while fits - too_early > 1:
        at = max(fits - stride, too_early + 1) if too_early < 0 else (too_early + fits) // 2
        result = attempt(starts[at])
        if result is None:
            too_early = at
        else:
            fits, found = at, result
            stride *= 2
    return found


def _size(message: Message) -> int:
    calls = (call.name + call.arguments for call in message.tool_calls)
    texts = (message.text, message.reasoning or "", *calls)
    images = sum(part.tokens for part in message.content if isinstance(part, RenderedImage))
    written = sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)
    return _BYTES_OF_MARKS + written + _BYTES_OF_TOKEN * images
