"""Texts of random lengths, equal in every run."""

from __future__ import annotations

import random

_WORDS = [
    "the",
    "value",
    "of",
    "class",
    "self",
    "import",
    "return",
    "and",
    "array",
    "test",
    "hello",
    "strange",
    "quick",
    "index",
]


def random_texts(count: int, longest: int = 60, seed: int = 0) -> tuple[str, ...]:
    """Return texts of 1 to `longest` words."""
    source = random.Random(seed)
    return tuple(" ".join(source.choices(_WORDS, k=source.randint(1, longest))) for _ in range(count))
