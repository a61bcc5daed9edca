"""Conversations that end in JSON or in calls, as clients want them that send schemas or tools."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from .calls import after_results, forced_call, no_call, wished_call
from .conversation import Example
from .json_answers import any_object, held_to_a_schema


def structured(seed: int) -> Iterator[Example]:
    """An endless stream of conversations that end in JSON or in calls."""
    random = Random(seed)
    while True:
        draw = random.random()
        if draw < 0.4:
            yield held_to_a_schema(random, seen=False)
        elif draw < 0.48:
            yield held_to_a_schema(random, seen=True)
        elif draw < 0.57:
            yield any_object(random)
        elif draw < 0.69:
            yield no_call(random)
        elif draw < 0.78:
            yield forced_call(random)
        elif draw < 0.9:
            yield wished_call(random)
        else:
            yield after_results(random)
