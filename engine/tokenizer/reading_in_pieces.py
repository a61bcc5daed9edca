"""Loading of a tokenizer's file in pieces, so that other threads run meanwhile.

mlx-lm and transformers parse all of `tokenizer.json` three times and request the whole vocabulary three
times, in C or Rust code that holds the GIL: once for 0.37 s and five times for 0.15 s with 152,000 tokens.
Two of these passes need only the data beside the vocabulary, and others only a few of its names.
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
    """Return a tokenizer's document without tokens and merges, and the raw parts of its model.

    Raises:
        msgspec.DecodeError: The data is not a tokenizer's document.
    """
    parts = msgspec.json.decode(data, type=_Parts)
    model = msgspec.json.decode(parts.pop("model", b"null"), type=_Parts)
    document = {name: msgspec.json.decode(part) for name, part in parts.items()}
    kept = {
        name: msgspec.json.decode(part) for name, part in model.items() if name not in ("vocab", "merges")
    }
    return {**document, "model": {**kept, "vocab": {}, "merges": []}}, model


def read_backend(path: str) -> Any:
    """Return the tokenizer of a tokenizer.json, as `tokenizers.Tokenizer.from_file` does.

    Raises:
        ValueError: The tokenizer expands texts too much, or the path is not a regular file.
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
