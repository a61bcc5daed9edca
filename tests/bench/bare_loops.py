"""Baseline loops without a server, against which ours is measured."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx

from greenroom.engine.kv_cache import caches
from greenroom.engine.text.text_engine import TextEngine
from greenroom.schemas.events.events import Finished
from greenroom.schemas.messages.generation import GenerationParameters
from greenroom.schemas.messages.prepared_input import PreparedPrompt
from greenroom.schemas.messages.requests import InferenceRequest, RawInput
from greenroom.schemas.model_key import ModelKey

Prompts = Sequence[Sequence[int]]


def load_model(folder: Path) -> Any:
    """Return a model in the form that the loops take."""
    from greenroom.engine.loading.load_model import load_model
    from greenroom.schemas.settings.settings import Settings

    return load_model(folder, Settings())


def bare_loop(model: Any, prompts: Prompts, tokens: Sequence[int]) -> list[list[int]]:
    """Run one padded prefill, then pipelined forward passes with argmax only.

    Args:
        prompts: Token ids by row.
        tokens: Number of tokens to generate for each row; all rows are computed until the last is done.
    """
    lengths = [len(prompt) - 1 for prompt in prompts]
    width = max(lengths)
    cache = caches.new_cache(model)
    if len(prompts) > 1:
        cache = caches.merge([cache, *(caches.new_cache(model) for _ in prompts[1:])])
        caches.finalize(cache)
    if width:
        padding = [width - length for length in lengths]
        rows = [[*prompt[:-1], *[0] * pad] for prompt, pad in zip(prompts, padding, strict=True)]
        if any(padding):
            caches.prepare(cache, lengths, padding)
        model(mx.array(rows), cache=cache)
        if any(padding):
            caches.finalize(cache)
        mx.eval(caches.state(cache))
    inputs = mx.array([prompt[-1] for prompt in prompts])
    steps: list[Any] = []
    in_flight: mx.array | None = None
    for _ in range(max(tokens)):
        inputs = mx.argmax(model(inputs[:, None], cache=cache)[:, -1, :], axis=-1)
        mx.async_eval(inputs)
        if in_flight is not None:
            steps.append(in_flight.tolist())
        in_flight = inputs
    if in_flight is not None:
        steps.append(in_flight.tolist())
    return [[step[row] for step in steps[:count]] for row, count in enumerate(tokens)]


def batch_generator(model: Any, prompts: Prompts, tokens: Sequence[int]) -> list[list[int]]:
    """Run mlx-lm's own continuous batching, greedily."""
    from mlx_lm.generate import BatchGenerator

    generator = BatchGenerator(model, completion_batch_size=max(32, len(prompts)))
    rows = generator.insert([list(prompt) for prompt in prompts], list(tokens))
    generated: dict[int, list[int]] = {row: [] for row in rows}
    try:
        while True:
            prompted, stepped = generator.next()
            if not prompted and not stepped:
                break
            for response in stepped:
                generated[response.uid].append(response.token)
    finally:
        generator.close()
    return [generated[row] for row in rows]


def bare_prefill(model: Any, prompts: Prompts, tokens: Sequence[int]) -> list[list[int]]:
    """Run mlx-lm's own prefill up to the first token, one prompt at a time; return no tokens."""
    from mlx_lm.generate import generate_step

    for prompt in prompts:
        for _ in generate_step(mx.array(list(prompt)), model, max_tokens=0):
            pass
    return [[] for _ in prompts]


def own_loop(engine: TextEngine, prompts: Prompts, tokens: Sequence[int]) -> list[range]:
    """Run our loop with all its host work, greedily, on an idle engine.

    Returns:
        A range for each answer, as long as its number of tokens.
    """
    greedy = GenerationParameters(temperature=0.0)
    for index, (prompt, count) in enumerate(zip(prompts, tokens, strict=True)):
        request = InferenceRequest(str(index), ModelKey("baseline"), RawInput(tuple(prompt)))
        engine.submit(request, PreparedPrompt(tuple(prompt), frozenset(), count, greedy))
    answers = [range(0)] * len(prompts)
    while engine.has_work:
        for request_id, event in engine.step():
            if isinstance(event, Finished):
                answers[int(request_id)] = range(event.usage.generated)
    return answers
