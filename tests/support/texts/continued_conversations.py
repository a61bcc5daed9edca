"""A conversation of token ids that an engine begins, and another goes on with from kept prefixes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from greenroom.tests.support.engines.text_engines import expected
from greenroom.tests.support.texts.prompts import TURN_END, words


class Asked(Protocol):
    """An engine that answers prompts."""

    def ask(self, prompt: Sequence[int], count: int = 12) -> tuple[list[int], int]:
        """Return the answer's tokens, and the number of cached prompt tokens."""


def begin_conversation(engine: Asked) -> list[int]:
    """Return the tokens of a conversation of three turns."""
    prompt = [*words(200, 1), TURN_END]
    for turn in range(3):
        prompt += [*words(40, 100 + turn), TURN_END, 300]
        answer, _ = engine.ask(prompt)
        prompt += [*answer, TURN_END]
    return prompt


def continue_conversation(engine: Asked, folder: Path, prompt: list[int]) -> list[int]:
    """Check a fork and a fourth turn against the bare model, and return the tokens of the fork.

    Args:
        folder: Folder of the model.
        prompt: Tokens of `begin_conversation`.
    """
    fork = [*prompt[:201], *words(60, 7)]
    answer, cached = engine.ask(fork)
    assert (answer, cached) == (expected(folder, tuple(fork), 12), 201)
    longer = [*prompt, *words(40, 200), TURN_END, 300]
    answer, cached = engine.ask(longer)
    assert answer == expected(folder, tuple(longer), 12)
    assert cached >= len(longer) - 60
    return fork
