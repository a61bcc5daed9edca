"""The member `greenroom` of a usage: why a prompt was computed again, and what its request waited for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from greenroom.schemas.events.events import Finished
from greenroom.schemas.events.explanation import Explanation
from greenroom.schemas.messages.messages import JsonObject
from greenroom.schemas.problems import invalid

_FIELD = "include_explain"


def parse_explained(body: JsonObject) -> bool:
    """Return whether the client asks for an explanation, in `stream_options` or at the top level.

    Raises:
        ProblemError: 400 that names the field.
    """
    options = body.get("stream_options")
    found = [(_FIELD, body.get(_FIELD))]
    if isinstance(options, dict):
        found.append((f"stream_options.{_FIELD}", options.get(_FIELD)))
    for field, value in found:
        if value is not None and not isinstance(value, bool):
            raise invalid(f"`{field}` must be a boolean.", field)
    return any(value for _, value in found)


def explanation_body(explanation: Explanation) -> dict[str, Any]:
    """Return an explanation as clients see it, with seconds to a tenth of a millisecond."""
    prefix = attrs.asdict(explanation.prefix)
    preempted = attrs.asdict(explanation.preempted)
    return {
        "cached_tokens": attrs.asdict(explanation.cached),
        "prefix": {**prefix, "repeated_seconds": round(prefix["repeated_seconds"], 4)},
        "waited_seconds": {name: round(spent, 4) for name, spent in attrs.asdict(explanation.waits).items()},
        "preempted": {**preempted, "seconds": round(preempted["seconds"], 4)},
    }


def explanation_of(finished: Sequence[Finished], choices: int) -> Any:
    """Return the explanation of a response; an array with one for each prompt, if there are several.

    Returns None if the client has not asked for it.

    Args:
        finished: Final events of all its choices.
        choices: Number of choices per prompt.
    """
    prompts: dict[int, Explanation] = {}
    for event in sorted(finished, key=lambda event: event.index):
        if event.explanation is not None:
            first = prompts.get(event.index // choices)
            prompts[event.index // choices] = (
                event.explanation if first is None else first.plus(event.explanation)
            )
    bodies = [explanation_body(each) for each in prompts.values()]
    return bodies[0] if len(bodies) == 1 else bodies or None
