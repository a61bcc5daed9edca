"""The tiny models' output varies enough to reveal faults of a cache."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import pytest

from greenroom.tests.support.models.tiny_models import FAMILIES


@pytest.mark.parametrize("kind", FAMILIES)
def test_a_greedy_answer_has_many_distinct_tokens(tiny_model: Callable[..., Path], kind: str) -> None:
    from mlx_lm import load, stream_generate

    model, tokenizer = load(str(tiny_model(kind)))[:2]
    prompt = tokenizer.encode("def read(self, size=-1):")
    answer = [response.token for response in stream_generate(model, tokenizer, prompt, max_tokens=120)]
    assert len(answer) == 120
    assert len(set(answer)) >= 50


@pytest.mark.parametrize("kind", ["recurrent_gemma", "rwkv7", "qwen3_5"])
def test_no_weights_are_dead(tiny_model: Callable[..., Path], kind: str) -> None:
    """A recurrent block of zeros passes nothing on, which would hide faults of its state."""
    weights = mx.load(str(tiny_model(kind) / "model.safetensors"))
    assert isinstance(weights, dict)
    assert [name for name, weight in weights.items() if not mx.any(weight != 0)] == []
