"""Prompts with images beside others: streams yield to them as to one prompt, not as to a burst."""

from __future__ import annotations

from pathlib import Path

import mlx.core as mx
import pytest

from greenroom.engine.text.scheduler.prefill_policy import PrefillPolicy
from greenroom.engine.text.scheduler.prefill_queue import PrefillQueue
from greenroom.engine.text.scheduler.step_costs import StepCosts
from greenroom.tests.support.engines.embedded_prompts import EmbeddedPrompt
from greenroom.tests.support.engines.sequences import sequence
from greenroom.tests.support.engines.text_engines import loaded
from greenroom.tests.support.models.tiny_models import TinyModel

TOKEN_MS = 0.5


def first_chunk(folder: Path, *, features: bool, behind: int) -> int:
    """Return the tokens of a prompt that are prefilled between two steps of a stream.

    Args:
        features: Whether the prompt has features.
        behind: Number of text prompts that wait after it.
    """
    model, costs = loaded(folder)[0], StepCosts()
    for context in range(0, 3000, 30):
        costs.observe([], [(1, 30, context)], 30 * TOKEN_MS)
    queue = PrefillQueue(model, PrefillPolicy(max_stall=2, step_ms=0, max_waiting_factor=4), costs)
    first = sequence("first", 1000)
    if features:
        embeddings = model.model.embed_tokens(mx.array(list(first.prefill_tokens)))
        first.features = EmbeddedPrompt(first.prefill_tokens, embeddings)
    queue.add(first)
    for index in range(behind):
        queue.add(sequence(f"behind {index}", 2000), conversation=f"{index}")
    reached, ((rows, tokens, _),) = queue.advance(decode_ms=5.0)
    assert [(prefilled.request_id, rows) for prefilled, _ in reached] == [("first", 1)]
    return tokens


@pytest.mark.parametrize("behind", [1, 3, 9])
def test_others_behind_an_image_make_its_chunks_no_longer(tiny_model: TinyModel, behind: int) -> None:
    folder = tiny_model("qwen3")
    lone = first_chunk(folder, features=False, behind=0)
    assert first_chunk(folder, features=False, behind=behind) > 1.5 * lone
    assert first_chunk(folder, features=True, behind=behind) == lone
