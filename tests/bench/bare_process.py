"""Baseline loops in a process of their own: `python -m greenroom.tests.bench.bare_process MODEL`.

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
from typing import Any, TextIO, cast

from greenroom.schemas.messages.messages import Message, Role, TextPart
from greenroom.schemas.messages.requests import ChatInput, InferenceRequest
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.problems import Problem, ProblemError
from greenroom.schemas.settings.settings import Settings


class Baseline:
    """A model loaded for the baseline loops.

    Args:
        model: Local folder, or id of a hub model on this machine.
    """

    def __init__(self, model: str) -> None:
        from greenroom.engine.adapters.make_adapter import make_adapter
        from greenroom.engine.catalog.catalog import Catalog
        from greenroom.engine.catalog.kinds.detection import detect
        from greenroom.engine.text.text_engine import TextEngine
        from greenroom.engine.tokenizer.tokenizer import load_tokenizer
        from greenroom.tests.bench.bare_loops import load_model

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
        from greenroom.tests.bench import bare_loops as loops

        known_loops: dict[str, Callable[..., Sequence[Sequence[int]]]] = {
            "batch_generator": partial(loops.batch_generator, self.model),
            "bare_loop": partial(loops.bare_loop, self.model),
            "bare_prefill": partial(loops.bare_prefill, self.model),
            "own_loop": partial(loops.own_loop, self._engine),
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


if __name__ == "__main__":
    main()
