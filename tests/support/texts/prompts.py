"""Made-up prompts, and how much of one an engine knew."""

from __future__ import annotations

import random
from collections.abc import Sequence

from greenroom.schemas.events.events import Finished
from greenroom.tests.support.engines.text_engines import Driver

TURN_END = 2
"""What a turn ends with; no word is this token."""


def words(count: int, seed: int) -> list[int]:
    """Token ids; equal seeds make prompts that begin alike."""
    return random.Random(seed).choices(range(300, 2000), k=count)


def turn_ends(prompt: Sequence[int]) -> tuple[int, ...]:
    """Return where turns end."""
    return tuple(at for at, token in enumerate(prompt, 1) if token == TURN_END)


def ask(driver: Driver, prompt: Sequence[int], count: int = 12) -> tuple[list[int], int]:
    """Return the answer's tokens, and how many of the prompt's were known."""
    request = driver.submit(prompt, count, checkpoints=turn_ends(prompt))
    driver.run()
    return driver.tokens[int(request)], cached_tokens(driver, request)


def cached_tokens(driver: Driver, request: str) -> int:
    """Return how many tokens of the prompt were known, once the only answer to it is finished."""
    last = driver.events[request][-1]
    assert isinstance(last, Finished)
    return last.usage.cached
