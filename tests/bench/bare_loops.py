"""Baseline loops in a process of their own: `python -m greenroom.tests.bench.bare_loops MODEL`.

Each line on stdin is an order, each line on stdout a result, both JSON:

    {"loop": "batch_generator", "prompts": [[{"role": …, "content": …}], …], "tokens": [64, …]}
    {"seconds": 0.8, "prompt_tokens": 500, "tokens": 1024, "cpu": 1.3}

Prompts are rendered with the model's chat template, as in the server; this is not timed.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TextIO, cast

import mlx.core as mx

from greenroom.engine.kv_cache import caches
from greenroom.engine.text.text_engine import TextEngine
from greenroom.schemas.events.events import Finished
from greenroom.schemas.messages.generation import GenerationParameters
from greenroom.schemas.messages.messages import Message, Role, TextPart
from greenroom.schemas.messages.prepared_input import PreparedPrompt
from greenroom.schemas.messages.requests import ChatInput, InferenceRequest, RawInput
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.problems import Problem, ProblemError
from greenroom.schemas.settings.settings import Settings


class Baseline:
    """A model loaded for the baseline loops.

    Args:
        model: Local folder, or id of a hub model on this machine.
    """

    def __init__(self, model: str) -> None:
        from greenroom.engine.adapters.adapter import make_adapter
        from greenroom.engine.catalog.catalog import Catalog
        from greenroom.engine.catalog.kind_detection import detect
        from greenroom.engine.tokenizer.tokenizer import load_tokenizer

        entry = Catalog((model,)).find("default")
        if isinstance(entry, Problem):
            raise ProblemError(entry)
        if entry.folder is None:
            raise ProblemError(Problem(404, "model_not_found", f"{model} is not on this machine"))
        record = detect(entry.folder, False, entry.id)
        self._adapter = make_adapter(record, load_tokenizer(entry.folder, False, entry.id), Settings())
        self.model = load_model(entry.folder)
        self._engine = TextEngine(self.model, self._adapter)

    def run(self, order: dict[str, Any]) -> dict[str, float]:
        """Run one order; times are in seconds."""
        known_loops: dict[str, Callable[..., Sequence[Sequence[int]]]] = {
            "batch_generator": partial(batch_generator, self.model),
            "bare_loop": partial(bare_loop, self.model),
            "bare_prefill": partial(bare_prefill, self.model),
            "own_loop": partial(own_loop, self._engine),
        }
        prompts = [self.prompt_tokens(messages) for messages in order["prompts"]]
        run = known_loops[order["loop"]]
        began, cpu = time.perf_counter(), time.process_time()
        generated = run(prompts, order["tokens"])
        return {
            "seconds": time.perf_counter() - began,
            "prompt_tokens": sum(len(prompt) for prompt in prompts),
            "tokens": sum(len(row) for row in generated),
            "cpu": time.process_time() - cpu,
        }

    def prompt_tokens(self, messages: Iterable[Mapping[str, str]]) -> list[int]:
        """Return the token ids of a conversation in the model's template."""
        conversation = tuple(
            Message(cast(Role, message["role"]), (TextPart(message["content"]),)) for message in messages
        )
        request = InferenceRequest("baseline", ModelKey("default"), ChatInput(conversation))
        return list(self._adapter.prepare_input(request).tokens)


def main() -> None:
    """Answer orders until stdin ends."""
    results = _keep_for_results()
    try:
        baseline = Baseline(sys.argv[1])
        for line in sys.stdin:
            _answer(results, baseline.run(json.loads(line)))
    except ProblemError as problem:
        _answer(results, {"error": problem.problem.detail})


def _keep_for_results() -> TextIO:
    """Return the real stdout and redirect the output of libraries to stderr."""
    results = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return results


def _answer(results: TextIO, answer: dict[str, Any]) -> None:
    results.write(json.dumps(answer) + "\n")
    results.flush()


Prompts = Sequence[Sequence[int]]


def load_model(folder: Path) -> Any:
    """Return a model in the form that the loops take."""
    from greenroom.engine.loading.load_model import load_model as load

    return load(folder, Settings())


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


if __name__ == "__main__":
    main()
