"""Long text, tokenized piece by piece: the same tokens, and no more of them than are needed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from greenroom.engine.adapters.context_limits import collect_tokens
from greenroom.engine.loading.libraries import import_text_libraries
from greenroom.engine.tokenizer.text_pieces import PIECE, split_into_pieces
from greenroom.engine.tokenizer.tokenizer import ChatTokenizer, load_tokenizer
from greenroom.schemas.problems import ProblemError

PROSE = (Path(__file__).parents[3] / "notes" / "decisions.md").read_text() * 12
_LLAMA_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)


def byte_level(split: bool) -> Tokenizer:
    """Return what GPT-2, or Llama 3 and Qwen, have."""
    tokenizer = Tokenizer(models.BPE())
    words = pre_tokenizers.Split(Regex(_LLAMA_WORDS), "isolated")
    whole = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not split)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([words, whole]) if split else whole
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def sentence_piece(model: models.Model, scheme: str | None) -> Tokenizer:
    """Return what Llama 2 and Mistral, or Gemma and T5, have."""
    tokenizer = Tokenizer(model)
    if scheme is None:
        tokenizer.normalizer = normalizers.Replace(" ", "▁")
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    return tokenizer


MAKERS: dict[str, Any] = {
    "bytes": lambda: byte_level(split=False),
    "bytes split": lambda: byte_level(split=True),
    "words begin with spaces": lambda: sentence_piece(models.BPE(unk_token="<unk>"), "first"),
    "no words": lambda: sentence_piece(models.BPE(unk_token="<unk>"), None),
    "unigram": lambda: sentence_piece(models.Unigram(), "always"),
}


@pytest.fixture(params=MAKERS, scope="module")
def tokenizer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ChatTokenizer:
    """A tokenizer of each kind, trained on a little text."""
    tmp_path = tmp_path_factory.mktemp("tokenizer")
    made = MAKERS[request.param]()
    special = ["<unk>", "<s>", "</s>", "<|im_end|>"]
    trainer = trainers.UnigramTrainer if request.param == "unigram" else trainers.BpeTrainer
    options: dict[str, Any] = {"vocab_size": 700, "special_tokens": special, "show_progress": False}
    if request.param == "unigram":
        options["unk_token"] = "<unk>"
    if "bytes" in request.param:
        options["initial_alphabet"] = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(PROSE[:30_000].splitlines(keepends=True), trainer(**options))
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    made.save(str(tmp_path / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / "config.json").write_text("{}")
    import_text_libraries()
    return load_tokenizer(tmp_path)


TEXTS = {
    "prose": PROSE[:100_000],
    "one line": PROSE[:100_000].replace("\n", " "),
    "control tokens": "a<|im_end|>" * 9_000,
    "no spaces": "".join(Random(1).choices("abcdefghijklmnopqrstuvwxyz0123456789/+", k=100_000)),
    "indented": "\t\tif (a) {\r\n\r\n      b();\r\n" * 4000,
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_pieces_have_the_tokens_of_the_whole(tokenizer: ChatTokenizer, text: str) -> None:
    backend = tokenizer.wrapped._tokenizer._tokenizer
    for special, pieces in (
        (True, tokenizer.encode_prompt(text)),
        (False, tokenizer.encode_rendered(text)),
    ):
        found = list(pieces)
        assert len(found) > 1
        whole = backend.encode_batch_fast([text], add_special_tokens=special)[0].ids
        assert list(chain.from_iterable(found)) == whole


def test_no_piece_is_longer_than_it_may_be_and_none_is_lost() -> None:
    for separable in (True, False):
        for text in (*TEXTS.values(), " " * 100_000 + "a" + " " * 100_000):
            pieces = list(split_into_pieces(text, lambda *_, separable=separable: separable))
            assert "".join(pieces) == text
            assert all(0 < len(piece) <= PIECE for piece in pieces)


def test_a_text_that_cannot_fit_is_not_tokenized_to_its_end() -> None:
    taken = 0

    def pieces() -> Iterator[list[int]]:
        nonlocal taken
        while True:
            taken += 1
            yield [0] * 100

    with pytest.raises(ProblemError, match="resulted in 1100 tokens"):
        collect_tokens(pieces(), 10**7, 1000)
    assert taken == 11
    exactly = ([0] * 100 for _ in range(50))
    with pytest.raises(ProblemError, match="resulted in 5000 tokens"):
        collect_tokens(exactly, 10**5, 1000)
