"""Random prompts, and the number of their tokens found in the prefix cache."""

from __future__ import annotations

import random
from collections.abc import Sequence

from greenroom.schemas.events.events import Finished
from greenroom.tests.support.engines.text_engines import Driver

TURN_END = 2
"""End-of-turn token; `words` never returns it."""


def words(count: int, seed: int) -> list[int]:
    """Return random token ids; prompts with equal seeds share a prefix."""
    return random.Random(seed).choices(range(300, 2000), k=count)


def turn_ends(prompt: Sequence[int]) -> tuple[int, ...]:
    """Return the position after each end of turn."""
    return tuple(at for at, token in enumerate(prompt, 1) if token == TURN_END)


def ask(driver: Driver, prompt: Sequence[int], count: int = 12) -> tuple[list[int], int]:
    """Return the answer's tokens, and the number of cached prompt tokens."""
    request = driver.submit(prompt, count, checkpoints=turn_ends(prompt))
    driver.run()
    return driver.tokens[int(request)], cached_tokens(driver, request)


def cached_tokens(driver: Driver, request: str) -> int:
    """Return the number of cached prompt tokens of a finished request with one choice."""
    last = driver.events[request][-1]
    assert isinstance(last, Finished)
    return last.usage.cached
