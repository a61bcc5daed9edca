"""Costs of images in the engine, as ratios: text beside a bare loop, streams beside images, a second turn.

Each ratio is the median of rounds in which both sides take turns, over a tiny model with random weights:

    PYTHONPATH=.src python notes/vision_ratios.py [KIND …] [--rounds N]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from greenroom.engine.loading.libraries import import_vision_libraries

import_vision_libraries()

import mlx.core as mx  # noqa: E402

from greenroom.engine.text.prefix_cache.prefix_cache import PrefixCache  # noqa: E402
from greenroom.schemas.events.events import TextDelta  # noqa: E402
from greenroom.tests.support.engines.vision_engines import (  # noqa: E402
    Parts,
    VisionDriver,
    library,
    picture,
    prepared,
)
from greenroom.tests.support.models.tiny_vision_kinds import VISION_KINDS  # noqa: E402
from greenroom.tests.support.models.tiny_vision_models import make_tiny_vision_model  # noqa: E402

TEXT = "def read(self, size=-1): return the bytes that are left of it, and nothing else " * 4
TOKENS = 200
BLOCK = 10
"""Tokens of one side before the other has its turn: the machine's speed changes within a second."""

STREAMS = 4
IMAGES = 2
SIDE = 900
"""Pixels of an image's side: 1,000 tokens and more, but 784 of them for qwen3_vl's larger patches."""


def bare_loop(folder: Path) -> Iterator[None]:
    """Yield after each token of the library's language model alone, one step after the other."""
    from mlx_vlm.models.cache import make_prompt_cache

    model = library(folder)[0].language_model
    cache = make_prompt_cache(model)
    tokens, _ = prepared(folder, [TEXT])
    for name in ("_rope_deltas", "_position_ids"):
        if hasattr(model, name):
            setattr(model, name, None)
    next_token = mx.argmax(model(mx.array([tokens]), cache=cache).logits[:, -1], axis=-1)
    while True:
        following = mx.argmax(model(next_token[None], cache=cache).logits[:, -1], axis=-1)
        mx.async_eval(following)
        next_token.item()
        next_token = following
        yield


def engine_text(folder: Path, count: int) -> Iterator[None]:
    """Yield after each token of a lone text stream of the engine."""
    driver = VisionDriver(folder)
    driver.submit([TEXT], count)
    read = 0
    while driver.engine.has_work:
        driver.step()
        for _ in range(len(driver.tokens[0]) - read):
            yield
        read = len(driver.tokens[0])


def text_ratios(folder: Path, rounds: int) -> list[float]:
    """Return the engine's speed over the bare loop's, by block of tokens; the sides take turns."""
    sides = bare_loop(folder), engine_text(folder, (rounds + 2) * BLOCK)
    for side in sides:
        block_seconds(side)
    ratios = list[float]()
    for number in range(rounds):
        first, second = number % 2, 1 - number % 2
        seconds = {first: block_seconds(sides[first])}
        seconds[second] = block_seconds(sides[second])
        ratios.append(seconds[0] / seconds[1])
    return ratios


def block_seconds(side: Iterator[None]) -> float:
    began = time.perf_counter()
    for _ in range(BLOCK):
        next(side)
    return time.perf_counter() - began


def gaps(folder: Path, seed: int, clock: Callable[[], float]) -> tuple[list[float], list[float]]:
    """Return the seconds between two tokens of text streams: undisturbed, and while images are computed.

    Args:
        seed: Of the images, which come at once.
        clock: That of the process where others use the machine, too.
    """
    driver = VisionDriver(folder)
    asked = [prepared(folder, [f"{i} ", picture(seed + i, SIDE), " what is it?"]) for i in range(IMAGES)]
    streams = [driver.submit([f"{index} {TEXT}"], 8 * TOKENS) for index in range(STREAMS)]
    while any(not has_text(driver, stream) for stream in streams):
        driver.step()
    arrivals_of(driver, streams, clock, until=lambda: len(driver.tokens[0]) > TOKENS / 4)
    before = len(driver.tokens[0])
    quiet = arrivals_of(driver, streams, clock, until=lambda: len(driver.tokens[0]) > before + TOKENS)
    images = [driver.submit([], 1, made=made) for made in asked]
    beside = arrivals_of(
        driver, streams, clock, until=lambda: all(has_text(driver, image) for image in images)
    )
    return quiet, beside


def first_tokens(folder: Path, seed: int) -> tuple[float, float, float]:
    """Return seconds to the first token: of a prompt with an image, a second turn, and as many new tokens."""
    driver = VisionDriver(folder, options={"prefix_cache": PrefixCache(1 << 30)})
    first: Parts = ["Look at this: ", picture(seed, SIDE), " what is it?"]
    added = " And what is there behind it, and who has put it there, and what for?"
    plain = f"{seed} " + TEXT * 12
    took_first = first_token(driver, first)
    took_second = first_token(driver, [*first, added])
    first_token(driver, [plain])
    return took_first, took_second, first_token(driver, [plain + added])


def first_token(driver: VisionDriver, parts: Parts) -> float:
    made = prepared(driver.folder, parts)  # not on the clock: another thread's work
    began = time.perf_counter()
    asked = driver.submit(parts, 1, made=made)
    while not has_text(driver, asked) and driver.engine.has_work:
        driver.step()
    elapsed = time.perf_counter() - began
    while driver.engine.has_work:
        driver.step()
    return elapsed


def has_text(driver: VisionDriver, request_id: str) -> bool:
    return any(isinstance(event, TextDelta) for event in driver.events[request_id])


def arrivals_of(
    driver: VisionDriver, streams: Sequence[str], clock: Callable[[], float], until: Callable[[], bool]
) -> list[float]:
    """Step until then; return the seconds between two texts of each stream."""
    between, counted = list[float](), {stream: len(driver.events[stream]) for stream in streams}
    last = dict.fromkeys(streams, clock())
    while not until():
        driver.step()
        now = clock()
        for stream in streams:
            new = driver.events[stream][counted[stream] :]
            counted[stream] += len(new)
            if any(isinstance(event, TextDelta) for event in new):
                between.append(now - last[stream])
                last[stream] = now
    return between


def percentile(seconds: Sequence[float]) -> float:
    """Return the 99th percentile in milliseconds."""
    return statistics.quantiles(seconds, n=100)[98] * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", default=list(VISION_KINDS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--processor-time", action="store_true", help="measure gaps in processor time")
    options = parser.parse_args()
    clock = time.process_time if options.processor_time else time.perf_counter
    with tempfile.TemporaryDirectory() as home:
        for kind in options.kinds:
            folder = make_tiny_vision_model(kind, Path(home) / kind, wide=True)
            warmed = text_ratios(folder, 1), first_tokens(folder, 999)
            assert warmed
            text, again = text_ratios(folder, 20 * options.rounds), list[float]()
            stalls, undisturbed, steps, longest = list[float](), list[float](), list[int](), list[float]()
            for number in range(options.rounds):
                quiet, beside = gaps(folder, 10 * number + 1, clock)
                stalls.append(percentile(beside) / percentile(quiet))
                undisturbed.append(percentile(quiet))
                steps.append(len(beside) // STREAMS)
                longest.append(max(beside) * 1e3)
                first, second, own = first_tokens(folder, 10 * number + 5)
                again.append((second - own) / first)
            print(
                f"{kind}: text over bare loop {spread(text)}, p99 gap beside images {spread(stalls)} of "
                f"{statistics.median(undisturbed):.1f} ms (longest {statistics.median(longest):.1f} ms, "
                f"{statistics.median(steps):.0f} steps), second turn {spread(again)}",
                flush=True,
            )


def spread(values: Sequence[float]) -> str:
    """Return the median, and the quartiles around it."""
    low, middle, high = statistics.quantiles(values, n=4) if len(values) > 1 else [*values] * 3
    return f"{middle:.3f} ({low:.3f}-{high:.3f})"


if __name__ == "__main__":
    main()
