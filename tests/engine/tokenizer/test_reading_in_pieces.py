"""Tokenization of long text in pieces: the same tokens, and little more work."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from greenroom.engine.adapters.context_limits import collect_tokens
from greenroom.engine.loading.libraries import import_text_libraries
from greenroom.engine.tokenizer import reading_in_pieces
from greenroom.engine.tokenizer import tokenizer as text_encoder
from greenroom.engine.tokenizer.reading_in_pieces import encode_in_pieces
from greenroom.engine.tokenizer.tokenizer import ChatTokenizer, load_tokenizer
from greenroom.schemas.problems import ProblemError

_PAGES = sorted((Path(__file__).parents[3] / "notes" / "decisions").glob("*.md"))
PROSE = "".join(page.read_text(encoding="utf-8") for page in _PAGES) * 12
_LLAMA_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
_NUMBERS_FROM_THEIR_END = r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))|" + _LLAMA_WORDS


def byte_level(words: str | None) -> Tokenizer:
    """Return the parts of GPT-2's tokenizer, or with its word pattern Llama 3's and Qwen's."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    whole = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=words is None)
    split = [pre_tokenizers.Split(Regex(words), "isolated")] if words else []
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*split, whole])
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def sentence_piece(model: models.Model, scheme: str | None) -> Tokenizer:
    """Return the parts of Llama 2's and Mistral's tokenizers, or of Gemma's and T5's."""
    tokenizer = Tokenizer(model)
    if scheme is None:
        tokenizer.normalizer = normalizers.Replace(" ", "▁")
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    return tokenizer


RUNS = (
    *(
        "a",
        "ab",
        "aab",
        " ",
        "\n",
        "\n ",
        " \n",
        "\r\n ",
        "\t",
        "0",
        "1234567",
        "1 ",
        "12,",
        "-",
        "!?",
        "x y",
    ),
    *(
        "\u4e2d",
        "\u4e2d\u6587\u5b57",
        "\u30ab\u30ca",
        "e\u0301",
        "\u0301",
        "\u0323\u0301",
        "\u1100\u1161\u11a8",
    ),
    *("\U0001f44d\U0001f3fd", "\U0001f468\u200d\U0001f469", " \U0001f600", "\u00a0", "\u0915\u094d", "it's "),
    *("<|im_end|>", "<|im_"),
)
"""Units of repetitive texts in which no position is like the end of a word or a line."""

MAKERS: dict[str, Any] = {
    "bytes": lambda: byte_level(None),
    "bytes split": lambda: byte_level(_LLAMA_WORDS),
    "bytes, numbers from their end": lambda: byte_level(_NUMBERS_FROM_THEIR_END),
    "words begin with spaces": lambda: sentence_piece(models.BPE(unk_token="<unk>"), "first"),
    "no words": lambda: sentence_piece(models.BPE(unk_token="<unk>"), None),
    "unigram": lambda: sentence_piece(models.Unigram(), "always"),
}


@pytest.fixture(params=MAKERS, scope="module")
def tokenizer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ChatTokenizer:
    """Return a tokenizer of each kind, trained on a little text."""
    tmp_path = tmp_path_factory.mktemp("tokenizer")
    made = MAKERS[request.param]()
    special = ["<unk>", "<s>", "</s>", "<|im_end|>"]
    trainer = trainers.UnigramTrainer if request.param == "unigram" else trainers.BpeTrainer
    options: dict[str, Any] = {"vocab_size": 700, "special_tokens": special, "show_progress": False}
    if request.param == "unigram":
        options["unk_token"] = "<unk>"
    if "bytes" in request.param:
        options["initial_alphabet"] = pre_tokenizers.ByteLevel.alphabet()
    runs = [run * length for run in RUNS for length in (2, 4, 8, 33)]
    made.train_from_iterator([*PROSE[:30_000].splitlines(keepends=True), *runs], trainer(**options))
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    made.save(str(tmp_path / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / "config.json").write_text("{}")
    import_text_libraries()
    return load_tokenizer(tmp_path)


@pytest.fixture
def short_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Split texts of several thousand characters as longer ones are."""
    monkeypatch.setattr(text_encoder, "PIECE", 2_048)
    monkeypatch.setattr(reading_in_pieces, "PIECE", 2_048)


TEXTS = {
    "prose": PROSE[:15_000],
    "one line": PROSE[:15_000].replace("\n", " "),
    "control tokens": "a<|im_end|>" * 1_300,
    "no spaces": "".join(Random(1).choices("abcdefghijklmnopqrstuvwxyz0123456789/+", k=15_000)),
    "indented": "\t\tif (a) {\r\n\r\n      b();\r\n" * 600,
}


@pytest.mark.usefixtures("short_pieces")
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


@pytest.mark.usefixtures("short_pieces")
def test_runs_are_parted_only_where_the_whole_is(tokenizer: ChatTokenizer) -> None:
    backend = tokenizer.wrapped._tokenizer._tokenizer
    random = Random(5)
    texts = ["x " + run * (3_000 // len(run)) for run in RUNS]
    texts += [
        "".join(random.choice(RUNS) * random.choice((1, 100, 2_000)) for _ in range(3)) for _ in range(8)
    ]
    for text in texts:
        whole = backend.encode_batch_fast([text], add_special_tokens=False)[0].ids
        assert list(chain.from_iterable(tokenizer.encode_rendered(text))) == whole, text[:40]


@pytest.mark.usefixtures("short_pieces")
def test_a_number_is_not_parted_where_its_end_says_how_it_is_read() -> None:
    def from_the_end(text: str) -> list[int]:
        return [int(digits[::-1]) for digits in re.findall("...?.?", text[::-1])][::-1]

    number = "1234567" * 1_000
    whole = from_the_end(number)
    assert list(chain.from_iterable(encode_in_pieces(number, from_the_end, from_the_end))) == whole


@pytest.mark.usefixtures("short_pieces")
def test_what_cannot_be_parted_is_refused_when_it_is_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading_in_pieces, "LONGEST_PIECE", 8_192)
    taken: list[int] = []

    def as_one(text: str) -> list[int]:
        taken.append(len(text))
        return [hash(text)]

    with pytest.raises(ProblemError, match="8192 characters in a row that cannot be tokenized apart"):
        list(encode_in_pieces("1" * 20_000, as_one, as_one))
    assert max(taken) <= 8_192
    assert len(list(encode_in_pieces("1" * 4_000, as_one, as_one))) == 1


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
