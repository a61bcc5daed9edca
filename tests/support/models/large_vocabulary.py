"""A vocabulary as large as those of large models, and a tiny model with it."""

from __future__ import annotations

import json
import random
import shutil
from functools import cache
from pathlib import Path
from typing import Any

from greenroom.tests.support.models.tiny_models import CONFIGS, SPECIAL_TOKENS, make_tokenizer, make_weights

SIZE = 152_000

_LAYERS = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "intermediate_size": 64,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "vocab_size": SIZE,
}
"""Configuration small enough that a step on a CPU takes little longer than a large model's on a GPU."""


_STARTS = ("b", "c", "d", "st", "tr", "m", "n", "r", "l", "")
_PARTS = [start + end for start in _STARTS for end in ("a", "e", "ion", "ou")]
_SIGNS = '(){}[]<>=+-*/.,;:"_#@!?\n\t '


def large_tokenizer(size: int = SIZE) -> Any:
    """Return a byte-level BPE tokenizer of words, punctuation and a non-Latin script.

    Each token has a merge. Special tokens come first, as in the tiny models' own tokenizer.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {text: ident for ident, text in enumerate([*SPECIAL_TOKENS, *letters])}
    merges: list[tuple[str, str]] = []
    chance = random.Random(0)
    encode = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str
    letters_of = cache(lambda character: encode(character)[0][0])
    while len(vocabulary) < size:
        word = "".join(map(letters_of, _random_word(chance)))
        for end in range(2, len(word) + 1):
            if word[:end] not in vocabulary and len(vocabulary) < size:
                vocabulary[word[:end]] = len(vocabulary)
                merges.append((word[: end - 1], word[end - 1]))
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in SPECIAL_TOKENS])
    return tokenizer


def _random_word(chance: random.Random) -> str:
    kind = chance.random()
    if kind < 0.7:
        return chance.choice(("", " ")) + "".join(chance.choices(_PARTS, k=chance.randint(1, 6)))
    if kind < 0.85:
        return "".join(chr(chance.randint(0x4E00, 0x9FFF)) for _ in range(chance.randint(1, 3)))
    return "".join(chance.choices(_SIGNS, k=chance.randint(2, 6)))


def make_large_model(folder: Path, kind: str = "qwen3") -> Path:
    """Make a tiny model with a vocabulary of 152,000 tokens in `folder`, unless it exists."""
    if not (folder / "model.safetensors").exists():
        folder.mkdir(parents=True, exist_ok=True)
        make_tokenizer(folder)
        large_tokenizer().save(str(folder / "tokenizer.json"))
        (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 2}))
        make_weights(folder, {**CONFIGS[kind], **_LAYERS})
    return folder


def copies_of_large_model(folder: Path, kind: str, copies: int) -> tuple[Path, ...]:
    """Make such a model, and copies of its folder with other names."""
    first = make_large_model(folder / f"large-{kind}-0", kind)
    others = [folder / f"large-{kind}-{index}" for index in range(1, copies)]
    for other in others:
        shutil.copytree(first, other, dirs_exist_ok=True)
    return (first, *others)
