"""Which of a conversation's oldest turns may be dropped, and how many must be, so that the rest of it fits.

A client sends its whole conversation each time. If each time just enough were dropped, every prompt would
begin elsewhere than the one before, and nothing but the system message would be found in the prefix cache.
So cuts lie on a grid that the conversation's beginning alone determines: as it grows, its cut stays where
it is until a whole step more has to go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from greenroom.engine.adapters.conversation.shown_images import ShownImage
from greenroom.schemas.messages import Message

T = TypeVar("T")

_BYTES_OF_MARKS = 32
"""What stands around a message in a prompt, roughly."""
_BYTES_OF_TOKEN = 4
"""Of text, roughly; images have tokens only."""


def turn_starts(messages: Sequence[Message]) -> list[int]:
    """Return where a conversation may begin instead: at users' messages that part no call from its result.

    The last one is where the last turn begins, which always stays.
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
    """Return what is left of a conversation that begins at `start`: system messages before it stay."""
    system = (message for message in messages[:start] if message.role == "system")
    return (*system, *messages[start:])


def starts_on_grid(messages: Sequence[Message], starts: Sequence[int], step: int) -> list[int]:
    """Return those starts before which a multiple of `step` is passed, in bytes of text in UTF-8."""
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
    """Return what `attempt` makes of the first start from which a conversation fits; None if there is none.

    It is tried from the end, with twice as many turns each time, and then between: no attempt is much larger
    than what fits, however long the conversation is.

    Args:
        attempt: Returns None if the conversation does not fit from there.
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
    images = sum(part.tokens for part in message.content if isinstance(part, ShownImage))
    written = sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)
    return _BYTES_OF_MARKS + written + _BYTES_OF_TOKEN * images
