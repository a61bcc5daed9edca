"""Splitting of text into pieces that are spoken one after another, at natural pauses."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

LONGEST = 240
"""Largest weight of a piece, in English letters. Models that read a piece as a whole rush longer ones, and
take seconds before the first audio.
"""

SHORTEST = 60
"""Weight below which a sentence is joined with the next one: alone it would sound clipped."""

_END = re.compile(
    r"(?<=[.!?…])[\"'”’)\]»]*\s+"  # sentences in scripts that part words  # noqa: RUF001
    r"|(?<=[。！？｡])[」』”’）]*\s*"  # noqa: RUF001
    r"|\s*\n\s*"
)
_CLAUSE = re.compile(r"(?<=[,;:–—])\s+|(?<=[，；：、])")  # noqa: RUF001
_SPACE = re.compile(r"\s+")
_INITIAL = re.compile(r"(?:^|\s)(?:[A-Z]|Mr|Mrs|Ms|Dr|Prof|St|vs|No|e\.g|i\.e)\.$")
"""Abbreviations whose full stop ends no sentence, matched at the end of the text before a cut."""


def cut_into_pieces(text: str) -> tuple[str, ...]:
    """Return a text's pieces, none empty, none heavier than `LONGEST`.

    The first piece is the first sentence alone, whatever its length, so that audio starts early.
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
    """Return the approximate spoken length in letters; ideographs and digits count as several."""
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
    """Yield a sentence in parts within the limit: clauses, or else words, or else letters."""
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
    """Yield groups of adjacent parts, as many as fit."""
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
