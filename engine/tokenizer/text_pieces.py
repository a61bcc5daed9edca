"""Long text in pieces that are tokenized one by one: no call into a tokenizer is long, or fills memory.

A tokenizer's result takes some hundred bytes a token, and turning it into Python's numbers and freeing it
holds the GIL: 4 MB at once took 600 MB and stopped every stream for a quarter of a second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

PIECE = 65_536
"""Characters of a piece at most; most prompts have fewer and stay whole."""

_BESIDE = 256
"""Characters on either side of a place that are tried."""
_TRIES = 32
"""Places of each kind; more than a control token has characters."""

IsSeparable = Callable[[str, str], bool]
"""Whether two texts have the same tokens one behind the other as joined."""


def split_into_pieces(text: str, is_separable: IsSeparable) -> Iterator[str]:
    """Yield a text in pieces that have the same tokens one by one as joined.

    A piece ends where a line does, else a word, else anywhere, if the tokens beside that place are the same
    with and without it. Only a text without such a place, one letter repeated, may get a token more.
    """
    start = 0
    while len(text) - start > PIECE:
        end = _find_end(text, start + PIECE // 2, start + PIECE, is_separable)
        yield text[start:end]
        start = end
    yield text[start:]


def _find_end(text: str, low: int, high: int, is_separable: IsSeparable) -> int:
    for search in (_line_starts, _word_ends, _any):
        for end in islice(search(text, low, high), _TRIES):
            if is_separable(text[end - _BESIDE : end], text[end : end + _BESIDE]):
                return end
    return high


def _line_starts(text: str, low: int, high: int) -> Iterator[int]:
    end = high
    while (at := text.rfind("\n", low, end)) >= 0:
        if not text[at + 1].isspace():
            yield at + 1
        end = at


def _word_ends(text: str, low: int, high: int) -> Iterator[int]:
    end = high
    while (at := text.rfind(" ", low, end)) >= 0:
        if not text[at - 1].isspace() and not text[at + 1].isspace():
            yield at
        end = at


def _any(_text: str, low: int, high: int) -> Iterator[int]:
    return iter(range(high, low, -1))
