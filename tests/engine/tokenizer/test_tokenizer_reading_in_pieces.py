"""A large tokenizer loaded in pieces equals the one that the library loads at once."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, models, normalizers

from greenroom.engine.loading.libraries import import_text_libraries
from greenroom.engine.tokenizer import reading_in_pieces
from greenroom.engine.tokenizer.detokenizer import Vocabulary
from greenroom.engine.tokenizer.reading_in_pieces import read_backend
from greenroom.engine.tokenizer.tokenizer import load_tokenizer
from greenroom.tests.support.models.tiny_models import TOKENIZER, make_tokenizer

TEXT = "def f(x):\n    return 'grün 你好' <|im_end|> NAME<|x|> again"


@pytest.fixture(autouse=True)
def every_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Load small files in pieces too."""
    import_text_libraries()
    monkeypatch.setattr(reading_in_pieces, "_LARGE", 0)


def changed(**changes: Any) -> dict[str, Any]:
    """Return the tiny tokenizer's document with other fields of its model."""
    document: dict[str, Any] = json.loads(TOKENIZER.read_text())
    document["model"] |= changes
    return document


def with_added_tokens() -> dict[str, Any]:
    tokenizer = Tokenizer.from_file(str(TOKENIZER))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.add_tokens([AddedToken("name", normalized=True, single_word=True), AddedToken("<|y|>")])
    tokenizer.add_special_tokens([AddedToken("<|x|>", lstrip=True, rstrip=True)])
    tokenizer.add_tokens([AddedToken("  again")])
    tokenizer.enable_truncation(max_length=64)
    tokenizer.enable_padding(length=32)
    document: dict[str, Any] = json.loads(tokenizer.to_str())
    return document


OLDER = {"merges": [" ".join(pair) for pair in changed()["model"]["merges"]]}


@pytest.mark.parametrize(
    "document",
    [
        changed(),
        changed(byte_fallback=True, fuse_unk=True, unk_token="!", ignore_merges=True, dropout=0.0),
        changed(continuing_subword_prefix="", end_of_word_suffix=""),
        changed(**OLDER),
        with_added_tokens(),
        json.loads(Tokenizer(models.Unigram([("a", -1.0), ("b", -2.0)], unk_id=0)).to_str()),
        json.loads(Tokenizer(models.WordPiece({"a": 0, "[UNK]": 1})).to_str()),
    ],
    ids=["plain", "options", "empty affixes", "older form", "added tokens", "unigram", "word pieces"],
)
def test_it_is_the_same_as_read_at_once(document: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(document, ensure_ascii=False))
    at_once, in_pieces = Tokenizer.from_file(str(path)), read_backend(str(path))
    assert json.loads(in_pieces.to_str()) == json.loads(at_once.to_str())
    assert in_pieces.encode(TEXT).ids == at_once.encode(TEXT).ids
    assert in_pieces.get_vocab() == at_once.get_vocab()


def test_a_file_that_is_no_tokenizer_fails_as_it_does_at_once(tmp_path: Path) -> None:
    for text in ("[", "[]", "{}", '{"model": 1}', '{"model": {"type": "BPE", "vocab": 1, "merges": []}}'):
        path = tmp_path / "tokenizer.json"
        path.write_text(text)
        with pytest.raises(Exception, match=r".+") as at_once:
            Tokenizer.from_file(str(path))
        with pytest.raises(type(at_once.value), match=re.escape(str(at_once.value))):
            read_backend(str(path))


@pytest.mark.parametrize("tokenizer_class", ["PreTrainedTokenizerFast", "Qwen2Tokenizer"])
def test_a_model_folder_is_loaded_the_same(
    tokenizer_class: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_tokenizer(tmp_path)
    config = tmp_path / "tokenizer_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "tokenizer_class": tokenizer_class}))
    (tmp_path / "config.json").write_text("{}")
    in_pieces = load_tokenizer(tmp_path)
    monkeypatch.setattr(reading_in_pieces, "_LARGE", 1 << 40)
    at_once = load_tokenizer(tmp_path)
    for name in ("has_thinking", "think_start", "think_end", "has_tool_calling", "tool_call_start"):
        assert getattr(in_pieces.wrapped, name) == getattr(at_once.wrapped, name)
    assert in_pieces.wrapped.has_thinking
    assert type(in_pieces.wrapped._detokenizer) is type(at_once.wrapped._detokenizer)
    assert in_pieces.eos_token_ids == at_once.eos_token_ids
    assert in_pieces.wrapped.backend_tokenizer.to_str() == at_once.wrapped.backend_tokenizer.to_str()
    assert list(in_pieces.encode_prompt(TEXT)) == list(at_once.encode_prompt(TEXT))


def test_a_vocabulary_is_looked_up_and_listed_with_its_gaps() -> None:
    tokenizer = Tokenizer(models.WordLevel({"a": 0, "b": 2, "c": 7}, unk_token="a"))
    tokenizer.add_special_tokens(["<d>"])
    vocabulary = Vocabulary(tokenizer)
    assert dict(vocabulary) == tokenizer.get_vocab(with_added_tokens=True)
    assert "<d>" in vocabulary
    assert vocabulary.get("e") is None
