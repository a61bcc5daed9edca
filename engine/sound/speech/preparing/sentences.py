"""Text cut into pieces that are spoken one after another, as a reader would pause in it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

LONGEST = 240
"""Weight of a piece: letters of English. What is longer is rushed by models that read a piece as a whole, and
takes seconds before a part of it can be heard."""

SHORTEST = 60
"""A sentence that weighs less is spoken with the next one: alone it would sound clipped."""

_END = re.compile(
    r"(?<=[.!?…])[\"'”’)\]»]*\s+"  # sentences in scripts that part words  # noqa: RUF001
    r"|(?<=[。！？｡])[」』”’）]*\s*"  # noqa: RUF001
    r"|\s*\n\s*"
)
_CLAUSE = re.compile(r"(?<=[,;:–—])\s+|(?<=[，；：、])")  # noqa: RUF001
_SPACE = re.compile(r"\s+")
_INITIAL = re.compile(r"(?:^|\s)(?:[A-Z]|Mr|Mrs|Ms|Dr|Prof|St|vs|No|e\.g|i\.e)\.$")
"""A full stop that ends no sentence, where it stands before the cut."""


def cut_into_pieces(text: str) -> tuple[str, ...]:
    """Return the pieces of a text, none empty, none heavier than `LONGEST`.

    The first is the first sentence alone, whatever its length, so that something is heard early.
    """
    pieces: list[str] = []
    for sentence in _sentences(text):
        for part in _fitting(sentence):
            mergeable = len(pieces) > 1 and weigh(pieces[-1]) < SHORTEST
            if mergeable and weigh(pieces[-1]) + weigh(part) <= LONGEST:
                pieces[-1] = f"{pieces[-1]} {part}"
            else:
                pieces.append(part)
    return tuple(pieces)


def weigh(text: str) -> int:
    """Return about how many letters are spoken: an ideograph is a word's part, a digit a word."""
    return sum(map(_weight, text))


def _weight(character: str) -> int:
    if character.isdigit():
        return 4
    return 3 if unicodedata.east_asian_width(character) in "WF" else 1


def _sentences(text: str) -> Iterator[str]:
    start = 0
    for end in _END.finditer(text):
        if _INITIAL.search(text[max(start, end.start() - 6) : end.start()]) and "\n" not in end.group():
            continue
        if sentence := text[start : end.end()].strip():
            yield _SPACE.sub(" ", sentence)
        start = end.end()
    if rest := text[start:].strip():
        yield _SPACE.sub(" ", rest)


def _fitting(sentence: str) -> Iterator[str]:
    """Yield a sentence in parts that are not too long: clauses, else words, else letters."""
    if weigh(sentence) <= LONGEST:
        yield sentence
        return
    for pattern in (_CLAUSE, _SPACE):
        parts = [part for part in pattern.split(sentence) if part]
        if len(parts) > 1:
            for joined in _join(parts):
                yield from _fitting(joined)
            return
    yield from _letters(sentence)


def _join(parts: list[str]) -> Iterator[str]:
    """Yield neighbors together, as many as fit."""
    joined, weight = "", 0
    for part in parts:
        added = weigh(part) + 1
        if joined and weight + added > LONGEST:
            yield joined
            joined, weight = "", 0
        joined = f"{joined} {part}" if joined else part
        weight += added
    yield joined


def _letters(word: str) -> Iterator[str]:
    part, weight = "", 0
    for character in word:
        if weight + _weight(character) > LONGEST:
            yield part
            part, weight = "", 0
        part += character
        weight += _weight(character)
    yield part
