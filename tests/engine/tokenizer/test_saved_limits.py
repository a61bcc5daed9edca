"""Truncation and padding saved with a tokenizer after training do not apply to prompts."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

from tokenizers import Tokenizer

from greenroom.engine.loading.libraries import import_text_libraries
from greenroom.engine.tokenizer.tokenizer import load_tokenizer
from greenroom.tests.support.models.tiny_models import TOKENIZER


def test_a_tokenizer_saved_with_truncation_and_padding_neither_cuts_nor_pads(tmp_path: Path) -> None:
    plain = Tokenizer.from_file(str(TOKENIZER))
    limited = Tokenizer.from_file(str(TOKENIZER))
    limited.enable_truncation(max_length=40)
    limited.enable_padding(length=32, direction="left")
    limited.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    (tmp_path / "config.json").write_text("{}")
    import_text_libraries()
    tokenizer = load_tokenizer(tmp_path)
    for text in ("hello", "word " * 100):
        whole = plain.encode(text, add_special_tokens=False).ids
        assert list(chain.from_iterable(tokenizer.encode_rendered(text))) == whole
