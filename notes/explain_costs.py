"""CPU time of a session whose prompts are explained, over one whose prompts are not: medians of pairs.

    python notes/explain_costs.py MODEL_FOLDER [PAIRS [TURNS [WORDS]]]

Each side prepares and answers the turns of an agent's session on an engine of its own, in one process; the
order is reversed in every second pair. The smaller the model, the larger is the share of an explanation.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from pathlib import Path

from greenroom.engine.adapters.adapter import Adapter
from greenroom.engine.adapters.make_adapter import make_adapter
from greenroom.engine.catalog.kinds.detection import detect
from greenroom.engine.memory.model_load import ModelLoad
from greenroom.engine.text.open_text_engine import open_text_engine
from greenroom.engine.text.text_engine import TextEngine
from greenroom.engine.tokenizer.tokenizer import load_tokenizer
from greenroom.schemas.messages.messages import Message, TextPart, Tool
from greenroom.schemas.messages.requests import ChatInput, InferenceRequest
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.settings.settings import Settings

TOOLS = tuple(
    Tool(
        f"tool_{i}",
        "Does what it says. " * 20,
        {"type": "object", "properties": {"path": {"type": "string"}}},
    )
    for i in range(30)
)


class Side:
    """An engine and its adapter, with or without explanations."""

    def __init__(self, folder: Path, *, explain: bool) -> None:
        settings, record = Settings(explain=explain), detect(folder)
        self.adapter: Adapter = make_adapter(record, load_tokenizer(folder), settings)
        self.engine: TextEngine = open_text_engine(ModelLoad(folder, record, settings), self.adapter)

    def cost(self, seed: int, turns: int, words: int) -> float:
        """Return the seconds of CPU that a session takes."""
        generator = random.Random(seed)

        def text() -> tuple[TextPart, ...]:
            return (TextPart(" ".join(str(generator.randrange(10_000)) for _ in range(words))),)

        messages = [Message("system", text())]
        began = time.process_time()
        for turn in range(turns):
            messages.append(Message("user", text()))
            chat = ChatInput(tuple(messages), TOOLS)
            request = InferenceRequest(f"{seed}-{turn}", ModelKey("m"), chat, {"max_tokens": 100}, "client")
            self.engine.submit(request, self.adapter.prepare_input(request))
            while self.engine.has_work:
                self.engine.step()
            messages.append(Message("assistant", text()))
        return time.process_time() - began


def main(folder: str, pairs: int = 9, turns: int = 8, words: int = 300) -> None:
    """Print the ratio, with its spread."""
    explained, plain = (Side(Path(folder), explain=explain) for explain in (True, False))
    ratios = []
    for pair in range(-1, pairs):
        sides = [explained, plain] if pair % 2 else [plain, explained]
        costs = [side.cost(pair, turns, words) for side in sides]
        ours, theirs = costs if pair % 2 else reversed(costs)
        if pair >= 0:
            ratios.append(ours / theirs)
            print(f"{ours:.3f} s over {theirs:.3f} s", flush=True)
    print(f"{statistics.median(ratios):.4f} ({min(ratios):.4f}-{max(ratios):.4f}), {pairs} pairs")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
