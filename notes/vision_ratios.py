"""What images cost in the engine, in ratios: text beside a bare loop, streams beside images, a second turn.

Each ratio is the median of rounds in which both sides take turns, over a tiny model with random weights:

    python notes/vision_ratios.py [KIND …] [--rounds N]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT.parent))

from greenroom.engine.loading.libraries import import_vision_libraries  # noqa: E402

import_vision_libraries()

import mlx.core as mx  # noqa: E402

from greenroom.engine.prefix_cache.prefix_cache import PrefixCache  # noqa: E402
from greenroom.schemas.events import TextDelta  # noqa: E402
from greenroom.tests.support.tiny_vision_kinds import VISION_KINDS  # noqa: E402
from greenroom.tests.support.tiny_vision_models import make_tiny_vision_model  # noqa: E402
from greenroom.tests.support.vision_engines import (  # noqa: E402
    Parts,
    VisionDriver,
    library,
    picture,
    prepared,
)

TEXT = "def read(self, size=-1): return the bytes that are left of it, and nothing else " * 4
TOKENS = 200
STREAMS = 4
SIDE = 900
"""Pixels of an image's side: 1,000 tokens and more, but 784 of them for qwen3_vl's larger patches."""


def bare_loop(folder: Path) -> float:
    """Return tokens per second of the library's language model alone, one step after the other."""
    from mlx_vlm.models.cache import make_prompt_cache

    model = library(folder)[0].language_model
    cache = make_prompt_cache(model)
    tokens, _ = prepared(folder, [TEXT])
    for name in ("_rope_deltas", "_position_ids"):
        if hasattr(model, name):
            setattr(model, name, None)
    next_token = mx.argmax(model(mx.array([tokens]), cache=cache).logits[:, -1], axis=-1)
    mx.eval(next_token)
    began = time.perf_counter()
    for _ in range(TOKENS):
        following = mx.argmax(model(next_token[None], cache=cache).logits[:, -1], axis=-1)
        mx.async_eval(following)
        next_token.item()
        next_token = following
    return TOKENS / (time.perf_counter() - began)


def engine_text(folder: Path) -> float:
    """Return tokens per second of a lone text stream, from its first token on."""
    driver = VisionDriver(folder)
    driver.submit([TEXT], TOKENS)
    arrivals = arrivals_of(driver, ["0"])["0"]
    return (len(arrivals) - 1) / (arrivals[-1] - arrivals[0])


def gaps(folder: Path, seed: int | None) -> float:
    """Return the 99th percentile of the milliseconds between two tokens of some text streams.

    Args:
        seed: Of two images that come meanwhile; None: none do.
    """
    driver = VisionDriver(folder)
    asked = (
        [prepared(folder, [f"{i} ", picture(seed + i, SIDE), " what is it?"]) for i in range(2)]
        if seed
        else []
    )
    streams = [driver.submit([f"{index} {TEXT}"], TOKENS * 4) for index in range(STREAMS)]
    while any(not has_text(driver, stream) for stream in streams):
        driver.step()
    for made in asked:
        driver.submit([], 4, made=made)
    arrivals = arrivals_of(driver, streams)
    between = [later - earlier for times in arrivals.values() for earlier, later in pairwise(times)]
    return statistics.quantiles(between, n=100)[98] * 1e3


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


def arrivals_of(driver: VisionDriver, streams: Sequence[str]) -> dict[str, list[float]]:
    """Step to the end; return when each stream's texts came."""
    times: dict[str, list[float]] = {stream: [] for stream in streams}
    counted = {stream: len(driver.events[stream]) for stream in streams}
    while driver.engine.has_work:
        driver.step()
        now = time.perf_counter()
        for stream in streams:
            new = driver.events[stream][counted[stream] :]
            counted[stream] += len(new)
            times[stream] += [now for event in new if isinstance(event, TextDelta)]
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", default=list(VISION_KINDS))
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        for kind in options.kinds:
            folder = make_tiny_vision_model(kind, Path(home) / kind, wide=True)
            warmed = engine_text(folder), bare_loop(folder), first_tokens(folder, 999)
            assert warmed
            text, beside, again = list[float](), list[float](), list[float]()
            for number in range(options.rounds):
                text.append(engine_text(folder) / bare_loop(folder))
                undisturbed = gaps(folder, None)
                beside.append(gaps(folder, 10 * number + 1) / undisturbed)
                first, second, own = first_tokens(folder, 10 * number + 5)
                again.append((second - own) / first)
            figures = [f"{statistics.median(each):.3f}" for each in (text, beside, again)]
            print(kind, "text over bare loop, gap beside images, second turn:", *figures, flush=True)


if __name__ == "__main__":
    main()
