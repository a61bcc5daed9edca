"""CPU time of requests whose prompts are explained, over that of the same ones unexplained: medians of pairs.

    python notes/explain_costs.py MODEL_FOLDER [PAIRS [TURNS [WORDS]]]

A pair is an agent's session. Two engines in one process, one of which explains, answer each of its turns, one
after the other and in reversed order every second time, so that a change of the machine's speed meets both.
The smaller the model, the larger is the share of an explanation.
"""

from __future__ import annotations

import os
import random
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from greenroom.engine.adapters.adapter import Adapter, make_adapter
from greenroom.engine.catalog.kind_detection import detect
from greenroom.engine.resources.residence import ModelLoad
from greenroom.engine.text.text_engine import TextEngine, open_text_engine
from greenroom.engine.tokenizer.tokenizer import load_tokenizer
from greenroom.schemas.events.events import Finished
from greenroom.schemas.messages.messages import Message, TextPart, Tool
from greenroom.schemas.messages.requests import ChatInput, InferenceRequest
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.settings.settings import Settings

LIMIT = 1.01
"""Ratio that issue 24 allows."""

_ANSWER = 100
"""Tokens of an answer."""

TOOLS = tuple(
    Tool(
        f"tool_{i}",
        "Does what it says. " * 5,
        {"type": "object", "properties": {"path": {"type": "string"}}},
    )
    for i in range(30)
)


class Side:
    """An engine and its adapter, with or without explanations.

    Attributes:
        cpu: Seconds of CPU of its last session.
        seconds: Seconds of all its sessions.
        computed: Tokens that it has computed: prompts beyond the cached prefix, and answers.
    """

    def __init__(self, folder: Path, *, explain: bool) -> None:
        settings, record = Settings(explain=explain), detect(folder)
        self.adapter: Adapter = make_adapter(record, load_tokenizer(folder), settings)
        self.engine: TextEngine = open_text_engine(ModelLoad(folder, record, settings), self.adapter)
        self.cpu = self.seconds = 0.0
        self.requests = self.computed = 0

    def answer(self, request: InferenceRequest) -> None:
        """Prepare and answer a request."""
        began, cpu = time.perf_counter(), time.process_time()
        prepared = self.adapter.prepare_input(request)
        self.engine.submit(request, prepared)
        ends = []
        while self.engine.has_work:
            ends += [event for _, event in self.engine.step() if isinstance(event, Finished)]
        self.cpu += time.process_time() - cpu
        self.seconds += time.perf_counter() - began
        [end] = ends
        self.requests += 1
        self.computed += end.usage.prompt - end.usage.cached + end.usage.generated

    @property
    def rate(self) -> str:
        """Throughput."""
        return f"{self.requests / self.seconds:.2f} requests and {self.computed / self.seconds:.0f} tokens/s"


def session(seed: int, turns: int, words: int) -> Iterator[InferenceRequest]:
    """Return the requests of a session."""
    generator = random.Random(seed)

    def text() -> tuple[TextPart, ...]:
        return (TextPart(" ".join(str(generator.randrange(10_000)) for _ in range(words))),)

    messages = [Message("system", text())]
    for turn in range(turns):
        messages.append(Message("user", text()))
        chat = ChatInput(tuple(messages), TOOLS)
        yield InferenceRequest(f"{seed}-{turn}", ModelKey("m"), chat, {"max_tokens": _ANSWER}, "client")
        messages.append(Message("assistant", text()))


def main(folder: str, pairs: int = 9, turns: int = 5, words: int = 40) -> None:
    """Print the ratio with its range, the throughput, and the machine's load."""
    explained, plain = (Side(Path(folder), explain=explain) for explain in (True, False))
    ratios, turn = [], 0
    for pair in range(-1, pairs):
        explained.cpu = plain.cpu = 0.0
        for request in session(pair, turns if pair >= 0 else 1, words):
            turn += 1
            for side in (explained, plain) if turn % 2 else (plain, explained):
                side.answer(request)
        if pair >= 0:
            ratios.append(explained.cpu / plain.cpu)
            print(f"{explained.cpu:.3f} s over {plain.cpu:.3f} s", flush=True)
    median = statistics.median(ratios)
    print(
        f"{median:.4f} ({min(ratios):.4f}-{max(ratios):.4f}), {pairs} pairs of {turns} requests; "
        f"{explained.rate}, without {plain.rate}; load {os.getloadavg()[0]:.1f}"
    )
    sys.exit(median > LIMIT)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
