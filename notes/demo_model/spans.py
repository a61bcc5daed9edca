"""Target texts, in spans that are learned more, less or not at all.

Where a grammar holds an answer, most of what is written is not the model's choice: the names of fields come
from a schema that it may never have seen, and what it would rather write is masked. What it has to know is
how to go on from there. So the pieces that a grammar forces are given but hardly learned, and what ends a
value, a list, an object or an answer is learned after all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from random import Random

import attrs

FORCED = 0.0
HINTED = 0.15
LEARNED = 1.0
ENDING = 2.0
"""Weight of what ends a string, a list or an object."""


class Against(Enum):
    """Tokens that a span is learned against; a grammar forbids the others."""

    ALL = 0
    OPENINGS = 1
    """Only those with which an answer can begin that has to be JSON or a call, or that think first."""
    NO_QUOTE = 2
    """All but those that end the string: it is not long enough, or not yet what its format wants."""
    NO_END = 3
    """All but those that end an object or a list: something in it is missing."""
    NO_BRACE = 4
    """All but the end of an object, which cannot end a list."""
    NO_BRACKET = 5
    """All but the end of a list, which cannot end an object."""


@attrs.frozen
class Span:
    """A piece of an answer, tokenized by itself.

    Args:
        text: The piece.
        weight: How much its tokens count in the loss; `FORCED` ones do not.
        against: What its tokens are learned against; for an opening, its first token.
    """

    text: str
    weight: float = LEARNED
    against: Against = Against.ALL


def joined(spans: Iterable[Span]) -> str:
    """Return the text of all pieces."""
    return "".join(span.text for span in spans)


def broken(random: Random, text: str, weight: float = FORCED) -> list[Span]:
    """Cut a text at random places, as an answer is whose usual tokens the mask forbids."""
    spans, at = [], 0
    while at < len(text):
        length = random.choice([1, 1, 2, 2, 3, 4, 6])
        spans.append(Span(text[at : at + length], weight))
        at += length
    return spans
