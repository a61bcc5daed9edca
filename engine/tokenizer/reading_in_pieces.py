"""Has the libraries read a tokenizer's file in pieces, so that other threads run meanwhile.

They parse the whole of `tokenizer.json` three times and ask for the whole vocabulary thrice, all in C or Rust
with the GIL held: 0.37 s at once for 152,000 tokens, and 0.15 s five times. In two of those they look at what
stands beside the vocabulary only, and of the vocabulary at a few names.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec

from greenroom.engine.catalog.files.regular_files import MAX_TOKENIZER_BYTES, read_regular
from greenroom.engine.tokenizer.growth import check_growth
from greenroom.engine.tokenizer.vocabulary import vocabulary_of

_LARGE = 1_000_000
"""Bytes of a file that is read in pieces; all of a smaller one is read in some 30 ms."""

_OPTIONS = (
    "dropout",
    "unk_token",
    "continuing_subword_prefix",
    "end_of_word_suffix",
    "fuse_unk",
    "byte_fallback",
    "ignore_merges",
)
"""What a byte-pair encoding has beside its tokens and merges, in its file as in its constructor."""

_BY_NAME = ("_infer_thinking", "_infer_structural_markers", "_infer_tool_parser")
"""What in mlx-lm asks for the whole vocabulary to look for names in it."""

_Parts = dict[str, msgspec.Raw]


@cache
def read_in_pieces() -> None:
    """Have mlx-lm and transformers read so from now on. Imports both: call it under the import lock."""
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
    """Something with other attributes in place of some of its own."""

    def __init__(self, original: Any, **replaced: Any) -> None:
        self._original = original
        self.__dict__.update(replaced)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)


def _by_name(tokenizer: Any) -> Any:
    return _With(tokenizer, get_vocab=lambda: vocabulary_of(tokenizer))


def _load_beside_vocabulary(file: Any) -> Any:
    """Return what a JSON file holds; of a large tokenizer's, without its tokens and merges."""
    text = file.read()
    if len(text) < _LARGE or not str(file.name).endswith("tokenizer.json"):
        return json.loads(text)
    try:
        document, _ = _outline(text.encode())
    except (msgspec.DecodeError, TypeError):
        return json.loads(text)
    return document


def _outline(data: bytes) -> tuple[dict[str, Any], _Parts]:
    """Return a tokenizer's document without tokens and merges, and the parts of its model as they stand.

    Raises:
        msgspec.DecodeError: It is something else.
    """
    parts = msgspec.json.decode(data, type=_Parts)
    model = msgspec.json.decode(parts.pop("model", b"null"), type=_Parts)
    document = {name: msgspec.json.decode(part) for name, part in parts.items()}
    kept = {
        name: msgspec.json.decode(part) for name, part in model.items() if name not in ("vocab", "merges")
    }
    return {**document, "model": {**kept, "vocab": {}, "merges": []}}, model


def read_backend(path: str) -> Any:
    """Return what `tokenizers.Tokenizer.from_file` does: a tokenizer of tokenizer.json.

    Raises:
        ValueError: It makes texts much longer, or is no file.
    """
    from tokenizers import Tokenizer

    data = read_regular(Path(path), MAX_TOKENIZER_BYTES)
    with contextlib.suppress(msgspec.DecodeError, TypeError):  # which tokenizers names itself
        check_growth(_outline(data)[0])
    made = _read_pair_encoding(data) if len(data) >= _LARGE else None
    return Tokenizer.from_file(path) if made is None else made


def _read_pair_encoding(data: bytes) -> Any:
    """Return a byte-level or sentence-piece BPE; None if it is of another kind, or of an older form."""
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
    """A list that is iterated in Python, so that whoever does so elsewhere gives others a turn."""

    def __iter__(self) -> Iterator[Any]:
        for begin in range(0, len(self), 1_000):
            yield from self[begin : begin + 1_000]
