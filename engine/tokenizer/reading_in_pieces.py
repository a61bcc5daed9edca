"""Loading of a tokenizer's file in pieces, so that other threads run meanwhile.

mlx-lm and transformers parse all of `tokenizer.json` three times and request the whole vocabulary three
times, in C or Rust code that holds the GIL: once for 0.37 s and five times for 0.15 s with 152,000 tokens.
Two of these passes need only the data beside the vocabulary, and others only a few of its names.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from functools import cache
from itertools import chain, groupby, islice
from pathlib import Path
from typing import Any

import msgspec

from greenroom.engine.catalog.model_files import MAX_TOKENIZER_BYTES, read_regular
from greenroom.engine.tokenizer.detokenizer import vocabulary_of
from greenroom.engine.tokenizer.growth import check_growth
from greenroom.schemas.problems import invalid

_LARGE = 1_000_000
"""Size from which a file is loaded in pieces, in bytes; a smaller one takes at most about 30 ms."""

_OPTIONS = (
    "dropout",
    "unk_token",
    "continuing_subword_prefix",
    "end_of_word_suffix",
    "fuse_unk",
    "byte_fallback",
    "ignore_merges",
)
"""Options of a byte-pair encoding, with the same names in its file and in its constructor."""

_BY_NAME = ("_infer_thinking", "_infer_structural_markers", "_infer_tool_parser")
"""Functions of mlx-lm that request the whole vocabulary to look up names."""

_Parts = dict[str, msgspec.Raw]


@cache
def read_in_pieces() -> None:
    """Patch mlx-lm and transformers to load tokenizers in pieces.

    Imports both, so it must be called under the import lock.
    """
    from mlx_lm import tokenizer_utils
    from transformers import tokenization_utils_base, tokenization_utils_tokenizers

    for module in (tokenizer_utils, tokenization_utils_base):
        setattr(module, "json", _With(json, load=_load_beside_vocabulary))  # noqa: B010
    backend = tokenization_utils_tokenizers.TokenizerFast
    tokenization_utils_tokenizers.TokenizerFast = _With(backend, from_file=read_backend)
    for name in _BY_NAME:
        infer = getattr(tokenizer_utils, name)
        setattr(tokenizer_utils, name, lambda tokenizer, infer=infer: infer(_by_name(tokenizer)))


class _With:
    """A proxy with some attributes of an object replaced."""

    def __init__(self, original: Any, **replaced: Any) -> None:
        self._original = original
        self.__dict__.update(replaced)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)


def _by_name(tokenizer: Any) -> Any:
    return _With(tokenizer, get_vocab=lambda: vocabulary_of(tokenizer))


def _load_beside_vocabulary(file: Any) -> Any:
    """Return the content of a JSON file, without tokens and merges if it is a large tokenizer's."""
    text = file.read()
    if len(text) < _LARGE or not str(file.name).endswith("tokenizer.json"):
        return json.loads(text)
    try:
        document, _ = _outline(text.encode())
    except (msgspec.DecodeError, TypeError):
        return json.loads(text)
    return document


def _outline(data: bytes) -> tuple[dict[str, Any], _Parts]:
    """Return a tokenizer's document without tokens and merges, and the raw parts of its model. Raises
    msgspec.DecodeError: the data is not a tokenizer's document.
    """
    parts = msgspec.json.decode(data, type=_Parts)
    model = msgspec.json.decode(parts.pop("model", b"null"), type=_Parts)
    document = {name: msgspec.json.decode(part) for name, part in parts.items()}
    kept = {
        name: msgspec.json.decode(part) for name, part in model.items() if name not in ("vocab", "merges")
    }
    return {**document, "model": {**kept, "vocab": {}, "merges": []}}, model


def read_backend(path: str) -> Any:
    """Return the tokenizer of a tokenizer.json, as `tokenizers.Tokenizer.from_file` does. Raises ValueError:
    the tokenizer expands texts too much, or the path is not a regular file.
    """
    from tokenizers import Tokenizer

    data = read_regular(Path(path), MAX_TOKENIZER_BYTES)
    with contextlib.suppress(msgspec.DecodeError, TypeError):  # which tokenizers reports itself
        check_growth(_outline(data)[0])
    made = _read_pair_encoding(data) if len(data) >= _LARGE else None
    return Tokenizer.from_file(path) if made is None else made


def _read_pair_encoding(data: bytes) -> Any:
    """Return a byte-level or SentencePiece BPE tokenizer; None for other kinds and older file formats."""
    from tokenizers import Tokenizer, models

    try:
        document, model = _outline(data)
        del data
        about = document["model"]
        if about["type"] != "BPE" or about.keys() - {"type", "vocab", "merges", *_OPTIONS}:
            return None
        vocabulary = msgspec.json.decode(model["vocab"], type=dict[str, int])
        merges = msgspec.json.decode(model["merges"], type=list[tuple[str, str]])
    except (msgspec.DecodeError, KeyError, TypeError):
        return None
    options = {name: about[name] for name in _OPTIONS if about.get(name) is not None}
    added = document.pop("added_tokens", [])
    tokenizer = Tokenizer.from_str(json.dumps({**document, "added_tokens": []}))
    tokenizer.model = models.BPE(vocab=vocabulary, merges=_InTurns(merges), **options)
    _add_tokens(tokenizer, added)
    return (
        tokenizer if all(tokenizer.token_to_id(token["content"]) == token["id"] for token in added) else None
    )


def _add_tokens(tokenizer: Any, added: list[dict[str, Any]]) -> None:
    from tokenizers import AddedToken

    for special, group in groupby(added, lambda token: token["special"]):
        tokens = [AddedToken(**{name: of for name, of in token.items() if name != "id"}) for token in group]
        (tokenizer.add_special_tokens if special else tokenizer.add_tokens)(tokens)


class _InTurns(list[Any]):
    """A list iterated in Python code, so that a consumer written in C or Rust lets other threads run."""

    def __iter__(self) -> Iterator[Any]:
        for begin in range(0, len(self), 1_000):
            yield from self[begin : begin + 1_000]


# Tokenization of long text in pieces, so that calls stay short and memory use small.
#
# A tokenizer's result takes several hundred bytes per token, and converting and freeing it holds the GIL: 4
# MB of text at once took 600 MB and stopped every stream for 0.25 s.

PIECE = 65_536  # Length of a piece in characters; most prompts are shorter and stay whole
LONGEST_PIECE = 16 * PIECE
"""Largest length of a piece in characters, for text that cannot be split, such as a long number."""

_MARGIN = 1_024  # Length in characters of the text behind a split that must be checked
_REACH = 8_192  # Distance in characters from the end of a piece within which a split is tried first
_TRIES = 32  # Number of splits tried of each kind; more than a control token has characters
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
