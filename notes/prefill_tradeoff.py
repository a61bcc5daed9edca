"""Draw what `max_stall` trades: the pace of running streams against the first token of a long prompt.

    python notes/prefill_tradeoff.py MODEL_FOLDER PICTURE.png [REPEATS]

Drives the engine itself, on this thread. Needs matplotlib, which the extra `plot` brings.
"""

from __future__ import annotations

import itertools
import random
import statistics
import sys
import time
from pathlib import Path

from greenroom.engine.adapters.adapter import make_adapter
from greenroom.engine.catalog.kind_detection import detect
from greenroom.engine.resources.residence import ModelLoad
from greenroom.engine.text.text_engine import TextEngine, open_text_engine
from greenroom.engine.tokenizer.tokenizer import load_tokenizer
from greenroom.schemas.events.events import PromptProgress
from greenroom.schemas.messages.generation import GenerationParameters
from greenroom.schemas.messages.prepared_input import PreparedPrompt
from greenroom.schemas.messages.requests import InferenceRequest, RawInput
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.settings.setting_groups import Speculation
from greenroom.schemas.settings.settings import Settings

STALLS = (1.0, 2.0, 4.0, float("inf"))
STREAMS, STREAM_TOKENS, LONG_TOKENS, SETTLED, UNDISTURBED = 8, 94, 3600, 32, 60

names = (str(number) for number in itertools.count())


def main(folder: Path, picture: Path, repeats: int) -> None:
    rows: dict[float, list[tuple[float, float]]] = {stall: [] for stall in STALLS}
    first_token_alone(opened(folder, 2.0))
    for _ in range(repeats):
        alone = first_token_alone(opened(folder, 2.0))
        for stall in STALLS:
            first, gap = among_streams(opened(folder, stall))
            rows[stall].append((first / alone, gap))
            print(
                f"{stall:g}: first token {first / alone:.2f} of alone, p99 {gap:.2f} of undisturbed",
                flush=True,
            )
    draw(rows, picture)


def opened(folder: Path, stall: float, speculation: Speculation = "off") -> TextEngine:
    settings = Settings(max_stall=stall, prefix_cache_bytes=0, speculation=speculation)
    adapter = make_adapter(detect(folder), load_tokenizer(folder), settings)
    return open_text_engine(ModelLoad(folder, detect(folder), settings), adapter)


GREEDY = GenerationParameters(temperature=0.0)


def submit(engine: TextEngine, count: int, max_tokens: int, parameters: GenerationParameters = GREEDY) -> str:
    tokens = tuple(random.choices(range(100, 2000), k=count))
    request = InferenceRequest(next(names), ModelKey("model"), RawInput(tokens))
    prepared = PreparedPrompt(tokens, frozenset(), max_tokens, parameters, parse=False)
    engine.submit(request, prepared)
    return request.id


def until_first_token(engine: TextEngine, name: str) -> list[float]:
    """Seconds that the steps took until then: each gives every running stream a token."""
    steps = []
    while True:
        began = time.perf_counter()
        events = [event for owner, event in engine.step() if owner == name]
        steps.append(time.perf_counter() - began)
        if any(not isinstance(event, PromptProgress) for event in events):
            return steps


def first_token_alone(engine: TextEngine) -> float:
    took = sum(until_first_token(engine, submit(engine, LONG_TOKENS, 1)))
    engine.close()
    return took


def among_streams(engine: TextEngine) -> tuple[float, float]:
    """Seconds to the first token, and p99 of the time between the streams' tokens over undisturbed p99."""
    for _ in range(STREAMS):
        until_first_token(engine, submit(engine, STREAM_TOKENS, 100_000))
    for _ in range(SETTLED):
        engine.step()
    quiet = []
    for _ in range(UNDISTURBED):
        began = time.perf_counter()
        engine.step()
        quiet.append(time.perf_counter() - began)
    steps = until_first_token(engine, submit(engine, LONG_TOKENS, 1))
    engine.close()
    return sum(steps), p99(steps) / p99(quiet)


def p99(values: list[float]) -> float:
    return sorted(values)[-(-len(values) * 99 // 100) - 1]


def draw(rows: dict[float, list[tuple[float, float]]], picture: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axes = figure.subplots()
    points = [
        (statistics.median(x for x, _ in runs), statistics.median(y for _, y in runs))
        for runs in rows.values()
    ]
    axes.plot(*zip(*points, strict=True), "o-")
    for stall, point in zip(rows, points, strict=True):
        axes.annotate(f"{stall:g}", point, textcoords="offset points", xytext=(6, 6))
    axes.set_yscale("log")
    axes.set_xlabel("first token of the long prompt, over alone")
    axes.set_ylabel("p99 between tokens of 8 streams,\nover undisturbed p99")
    axes.set_title(f"max_stall, {LONG_TOKENS} tokens among {STREAMS} streams", fontsize="medium")
    axes.grid(visible=True, which="both", alpha=0.3)
    figure.savefig(picture, format="png", dpi=100)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 3)
