"""Removal of text already read changes no character of an answer, with any of mlx-lm's detokenizers."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from greenroom.engine.tokenizer.detokenizer import BoundedDetokenizer
from greenroom.tests.support.engines.text_engines import loaded


def text_of(detokenizer: Any, tokens: list[int]) -> str:
    pieces = []
    for token in tokens:
        detokenizer.add_token(token)
        pieces.append(detokenizer.last_segment)
    detokenizer.finalize()
    return "".join([*pieces, detokenizer.last_segment])


@pytest.mark.parametrize("name", ["BPE", "SPM", "Naive"])
@pytest.mark.parametrize("seed", range(6))
def test_text_is_the_same(tiny_model: Callable[..., Path], name: str, seed: int) -> None:
    from mlx_lm import tokenizer_utils

    tokenizer = loaded(tiny_model("qwen3"))[1].tokenizer.wrapped._tokenizer
    kind = getattr(tokenizer_utils, f"{name}StreamingDetokenizer")
    chosen = random.Random(seed)
    tokens = [chosen.randrange(7, 2048) for _ in range(900)]
    if seed == 0:
        tokens = tokenizer.encode("naïve café 日本語 🙂\n" * 60)
    assert len(plain := text_of(kind(tokenizer), tokens)) > 600
    assert text_of(BoundedDetokenizer(kind(tokenizer)), tokens) == plain


def test_memory_does_not_grow_with_the_answer(tiny_model: Callable[..., Path]) -> None:
    from mlx_lm.tokenizer_utils import BPEStreamingDetokenizer

    inner = BPEStreamingDetokenizer(loaded(tiny_model("qwen3"))[1].tokenizer.wrapped._tokenizer)
    text_of(BoundedDetokenizer(inner), [50 + i % 1000 for i in range(5000)])
    assert len(inner.text) < 300
    assert len(inner.tokens) < 300
