"""Log-probabilities of answers: those in events, and those of one plain forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from greenroom.schemas.events.events import InferenceEvent, TextDelta, TokenLogprob
from greenroom.tests.support.engines.text_engines import loaded


def scores_of(events: Sequence[InferenceEvent], index: int = 0) -> list[TokenLogprob]:
    deltas = [event for event in events if isinstance(event, TextDelta) and event.index == index]
    return [score for delta in deltas for score in delta.logprobs]


def plain_logprobs(folder: Path, prompt: Sequence[int], answer: Sequence[int]) -> Any:
    """Return log-probabilities `[answer, vocabulary]` of one forward pass over prompt and answer."""
    model, _ = loaded(folder)
    logits = model(mx.array([[*prompt, *answer]]))[0].astype(mx.float32)
    logprobs = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
    return np.array(logprobs)[len(prompt) - 1 : -1]
