"""Long text, tokenized piece by piece: no call into a tokenizer is long, or fills memory.

A tokenizer's result takes some hundred bytes a token, and turning it into Python's numbers and freeing it
holds the GIL: 4 MB at once took 600 MB and stopped every stream for a quarter of a second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, islice

from greenroom.schemas.problems import invalid

PIECE = 65_536
"""Characters that are tokenized at once; most prompts have fewer and stay whole."""
LONGEST_PIECE = 16 * PIECE
"""Characters that are tokenized at once where a text cannot be parted, as in the midst of a number."""

_MARGIN = 1_024
"""Characters behind a place that are looked at before the text is parted there."""
_REACH = 8_192
"""How far from the end of a piece a place is looked for at first."""
_TRIES = 32
"""Places of each kind; more than a control token has characters."""
_TRIES_ANYWHERE = 192
"""More than the longest token of one letter repeated has, of which only the ends will do."""
_OTHER_ENDS = (1, 2, 4, 9, 16, 35)
"""How much shorter a piece is made to see which tokens depend on its end: some count digits from there."""

Encode = Callable[[str], list[int]]


def encode_in_pieces(
    text: str, encode: Encode, encode_inside: Encode, *, anywhere: bool = True
) -> Iterator[list[int]]:
    """Yield the tokens of a text piece by piece: exactly those that it has as a whole.

    More is tokenized than is taken: a text is parted where the tokens that were found behind that place are
    the same without what stands before it. Such places are first looked for where lines and words end, then
    anywhere; there the tokens before it must be the same wherever the text ends, too.

    Args:
        encode: Tokenizes the beginning of the text.
        encode_inside: Tokenizes what follows.
        anywhere: Lines and words may be parted too: not where the best of many equal ways depends on a
            word's length, as in Unigram models.

    Raises:
        ProblemError: 400 for more than `LONGEST_PIECE` characters without such a place.
    """
    start, size = 0, PIECE
    while len(text) - start > size:
        piece = text[start : start + size]
        tokens = encode(piece)
        place = _find_place(piece, tokens, encode_inside, anywhere)
        if place is not None:
            end, count = place
            yield tokens[:count]
            start, size, encode = start + end, PIECE, encode_inside
        elif size < LONGEST_PIECE:
            size *= 4
        else:
            detail = f"The prompt has {size} characters in a row that cannot be tokenized apart"
            raise invalid(f"{detail}, such as the digits of one number.")
    yield encode(text[start:])


def _find_place(
    piece: str, tokens: list[int], encode_inside: Encode, anywhere: bool
) -> tuple[int, int] | None:
    """Return where a piece can end, and how many of its tokens are before that place; None for nowhere."""
    high = len(piece) - _MARGIN
    near, far = max(high - _REACH, 0), len(piece) // 2
    searches = (search(piece, low, high) for low in (near, far) for search in (_line_starts, _word_ends))
    for end in chain.from_iterable(islice(search, _TRIES) for search in searches):
        if (count := _tokens_before(piece, tokens, end, encode_inside)) is not None:
            return end, count
    return _find_place_anywhere(piece, tokens, high, encode_inside) if anywhere else None


def _find_place_anywhere(
    piece: str, tokens: list[int], high: int, encode_inside: Encode
) -> tuple[int, int] | None:
    begin = _last_place(piece, tokens, max(high - _REACH, 0), len(tokens), encode_inside)
    if begin is None:
        return None
    start, before = begin
    settled = before + _settled_tokens(piece[start:], tokens[before:], encode_inside)
    return None if settled == before else _last_place(piece, tokens, high, settled, encode_inside)


def _last_place(
    piece: str, tokens: list[int], high: int, settled: int, encode_inside: Encode
) -> tuple[int, int] | None:
    for end in range(high, max(high - _TRIES_ANYWHERE, 0), -1):
        count = _tokens_before(piece, tokens, end, encode_inside)
        if count is not None and count <= settled:
            return end, count
    return None


def _settled_tokens(piece: str, tokens: list[int], encode: Encode) -> int:
    """Return how many tokens are the same where the piece ends a little before."""
    settled = len(tokens)
    for less in _OTHER_ENDS:
        pairs = zip(tokens[:settled], encode(piece[:-less]), strict=False)
        settled = min(settled, next((i for i, (a, b) in enumerate(pairs) if a != b), settled))
    return settled


def _tokens_before(piece: str, tokens: list[int], end: int, encode_inside: Encode) -> int | None:
    """Return how many tokens are before a place, if those behind are the same without what is before."""
    behind = encode_inside(piece[end:])
    count = len(tokens) - len(behind)
    return count if count >= 0 and tokens[count:] == behind else None


def _line_starts(text: str, low: int, high: int) -> Iterator[int]:
    end = high
    while (at := text.rfind("\n", low, end)) >= 0:
        if not text[at + 1].isspace():
            yield at + 1
        end = at


def _word_ends(text: str, low: int, high: int) -> Iterator[int]:
    end = high
    while (at := text.rfind(" ", low, end)) > 0:
        if not text[at - 1].isspace() and not text[at + 1].isspace():
            yield at
        end = at
