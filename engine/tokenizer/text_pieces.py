"""Tokenization of long text in pieces, so that calls stay short and memory use small.

A tokenizer's result takes several hundred bytes per token, and converting and freeing it holds the GIL: 4 MB
of text at once took 600 MB and stopped every stream for 0.25 s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, islice

from greenroom.schemas.problems import invalid

PIECE = 65_536
"""Length of a piece in characters; most prompts are shorter and stay whole."""
LONGEST_PIECE = 16 * PIECE
"""Largest length of a piece in characters, for text that cannot be split, such as a long number."""

_MARGIN = 1_024
"""Length in characters of the text behind a split that must be checked."""
_REACH = 8_192
"""Distance in characters from the end of a piece within which a split is tried first."""
_TRIES = 32
"""Number of splits tried of each kind; more than a control token has characters."""
_TRIES_ANYWHERE = 192
"""Number of splits tried anywhere in a text.

It exceeds the length of the longest token of one repeated letter, which can be split only at its ends.
"""
_OTHER_ENDS = (1, 2, 4, 9, 16, 35)
"""Numbers of characters cut from a piece to see which tokens depend on its end.

Some tokenizers group digits from there.
"""

Encode = Callable[[str], list[int]]


def encode_in_pieces(
    text: str, encode: Encode, encode_inside: Encode, *, anywhere: bool = True
) -> Iterator[list[int]]:
    """Yield the token ids of a text piece by piece: exactly those of the whole text.

    Each piece is tokenized with some text behind its split. A split is valid if the tokens behind it are the
    same without the text before it. Splits are tried at ends of lines and words first, then anywhere; there
    the tokens before the split must also be the same wherever the text ends.

    Args:
        text: Text to tokenize.
        encode: Function that tokenizes the start of the text.
        encode_inside: Function that tokenizes later text.
        anywhere: True if lines and words may be split. False for Unigram models, where the best of many equal
            segmentations depends on a word's length.

    Raises:
        ProblemError: 400 for more than `LONGEST_PIECE` characters without a valid split.
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
    """Return a valid split of a piece and the number of tokens before it; None if there is none."""
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
    """Return the number of leading tokens that do not change if the piece ends a little earlier."""
    settled = len(tokens)
    for less in _OTHER_ENDS:
        pairs = zip(tokens[:settled], encode(piece[:-less]), strict=False)
        settled = min(settled, next((i for i, (a, b) in enumerate(pairs) if a != b), settled))
    return settled


def _tokens_before(piece: str, tokens: list[int], end: int, encode_inside: Encode) -> int | None:
    """Return the number of tokens before a split; None if the tokens behind depend on the text before."""
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
