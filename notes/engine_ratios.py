"""Ratios of the engine by itself, both sides in turns: medians of pairs, with spread.

    PYTHONPATH=.src python notes/engine_ratios.py MODEL_FOLDER [FIGURE]... [PAIRS]

saturation: 12 requests at a time, 30 in all, with prompts of 50 to 700 tokens, over unbounded prefill chunks
long-sequence: steps of 8 short sequences beside one of 6,000 tokens, over the two by themselves, in turn
mixed:      decoding 16 sequences in six kinds of sampling, with penalties and 5 log-probabilities each, over
            16 greedy
piecewise:  the machine's limit for a long prompt among streams. A bare loop decodes 8 sequences and computes
            12 tokens of a prompt of 3,600 between two steps: the prompt over alone, and p99 over undisturbed
repetitive: a lone answer that repeats itself (greedy, random weights), with prompt lookup over without it
unrepetitive: a lone answer sampled at temperature 2, where there is nothing to look up, likewise
adapters-unused: 16 rows of a model, without adapters over with four in memory that none of them applies
adapters-half: the same over 16 rows of which every second one applies one of the four (LoRA, rank 16)
adapters-all: the same over 16 rows that all apply one

Drives the engine itself, on this thread.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from greenroom.engine.loading.load_model import load_model
from greenroom.engine.text.text_engine import TextEngine
from greenroom.notes.prefill_tradeoff import first_token_alone, opened, p99, submit, until_first_token
from greenroom.schemas.messages.generation import GenerationParameters
from greenroom.schemas.messages.requests import AppliedAdapter
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.engines.text_engines import Driver
from greenroom.tests.support.models.tiny_adapters import make_adapter

SATURATION_SEQUENCES, SATURATION_REQUESTS = 12, 30
LONG_SEQUENCE = 6000
BLOCK = 12
PIECE = 12
ADAPTED = ("self_attn.q_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.up_proj", "mlp.down_proj")
ADAPTED_PROMPT = tuple(range(100, 116))
TURN = 4


def main(folder: Path, figures: list[str], pairs: int) -> None:
    known: dict[str, Callable[[Path, int], list[float]]] = {
        "saturation": saturation,
        "long-sequence": long_sequence,
        "mixed": mixed,
        "piecewise": piecewise,
        "repetitive": partial(lookup, temperature=0.0),
        "unrepetitive": partial(lookup, temperature=2.0),
        "adapters-unused": partial(adapters, of_four=0),
        "adapters-half": partial(adapters, of_four=2),
        "adapters-all": partial(adapters, of_four=4),
    }
    for name in figures or known:
        ratios = known[name](folder, pairs)
        low, high = min(ratios), max(ratios)
        print(f"{name}: {statistics.median(ratios):.3f} ({low:.3f}-{high:.3f}), {pairs} pairs", flush=True)


def saturation(folder: Path, pairs: int) -> list[float]:
    ratios = []
    for pair in range(-1, pairs):
        jobs = [(random.randint(50, 700), random.randint(32, 96)) for _ in range(SATURATION_REQUESTS)]
        took = {}
        for stall in (2.0, float("inf")) if pair % 2 else (float("inf"), 2.0):
            took[stall] = time_of(partial(saturate, opened(folder, stall), jobs))
        if pair >= 0:
            ratios.append(took[float("inf")] / took[2.0])
    return ratios


def saturate(engine: TextEngine, jobs: list[tuple[int, int]]) -> None:
    waiting = list(jobs)
    while waiting or engine.has_work:
        while waiting and engine.statistics().requests < SATURATION_SEQUENCES:
            submit(engine, *waiting.pop())
        engine.step()
    engine.close()


def long_sequence(folder: Path, pairs: int) -> list[float]:
    both, short, long = (opened(folder, 2.0) for _ in range(3))
    for engine in (both, short):
        for _ in range(8):
            until_first_token(engine, submit(engine, 100, 100_000))
    for engine in (both, long):
        until_first_token(engine, submit(engine, LONG_SEQUENCE, 100_000))
    ratios = []
    for pair in range(-2, pairs):
        order = [both, short, long] if pair % 2 else [long, short, both]
        took = {engine: time_of(partial(steps, engine, BLOCK)) for engine in order}
        if pair >= 0:
            ratios.append(took[both] / (took[short] + took[long]))
    return ratios


def mixed(folder: Path, pairs: int) -> list[float]:
    ratios = []
    for pair in range(-1, pairs):
        took = {}
        for kind in ("mixed", "greedy") if pair % 2 else ("greedy", "mixed"):
            engine = opened(folder, 2.0)
            for row in range(16):
                until_first_token(engine, submit(engine, 94, 100_000, SETTINGS[kind](row)))
            took[kind] = time_of(partial(steps, engine, 4 * BLOCK))
            engine.close()
        if pair >= 0:
            ratios.append(took["greedy"] / took["mixed"])
    return ratios


def six_kinds(row: int) -> GenerationParameters:
    narrowed: list[dict[str, Any]] = [
        {},
        {"top_p": 0.9 - row / 100},
        {"top_k": 20 + row},
        {"min_p": 0.02 + row / 1000},
        {"top_p": 0.95, "top_k": 40 + row},
        {"top_p": 0.8, "min_p": 0.01},
    ]
    return GenerationParameters(
        temperature=0.5 + row / 20,
        seed=random.getrandbits(31),
        repetition_penalty=1.05 + row / 100,
        presence_penalty=row / 50,
        frequency_penalty=row / 40,
        logprobs=True,
        top_logprobs=5,
        **narrowed[row % len(narrowed)],
    )


def greedy(row: int) -> GenerationParameters:
    return GenerationParameters(temperature=0.0)


SETTINGS = {"mixed": six_kinds, "greedy": greedy}


def piecewise(folder: Path, pairs: int) -> list[float]:
    """Prints p99 over undisturbed p99 beside; returns the prompt's time over alone."""
    import mlx.core as mx

    from greenroom.engine.kv_cache import caches
    from greenroom.tests.bench.bare_loops import load_model

    model = load_model(folder)
    first_token_alone(opened(folder, 2.0))

    def batch(tokens: int, rows: int) -> mx.array:
        return mx.array([random.choices(range(100, 2000), k=tokens) for _ in range(rows)])

    ratios, gaps = [], []
    for _ in range(pairs):
        alone = first_token_alone(opened(folder, 2.0))
        streams = caches.merge([caches.new_cache(model) for _ in range(8)])
        model(batch(126, 8), cache=streams)
        prompt, inputs = caches.new_cache(model), batch(1, 8)[:, 0]
        took: list[float] = []
        under_way: Any = None
        began = time.perf_counter()
        for step in range(60 + 3600 // PIECE):
            if step == 60:
                began = time.perf_counter()
            at = time.perf_counter()
            inputs = mx.argmax(model(inputs[:, None], cache=streams)[:, -1, :], axis=-1)
            mx.async_eval(inputs)
            if under_way is not None:
                under_way.tolist()
            under_way = inputs
            if step >= 60:
                mx.eval(caches.state(prompt)) if step > 60 else None
                model(batch(PIECE, 1), cache=prompt)
                mx.async_eval(caches.state(prompt))
            took.append(time.perf_counter() - at)
        mx.eval(caches.state(prompt))
        ratios.append((time.perf_counter() - began) / alone)
        gaps.append(p99(took[61:]) / p99(took[8:60]))
    spread = f"({min(gaps):.2f}-{max(gaps):.2f})"
    print(f"piecewise, p99 over undisturbed p99: {statistics.median(gaps):.2f} {spread}")
    return ratios


def lookup(folder: Path, pairs: int, temperature: float) -> list[float]:
    parameters = GenerationParameters(temperature=temperature)
    engines = {mode: opened(folder, 2.0, speculation=mode) for mode in ("off", "lookup")}
    ratios = []
    for pair in range(-2, pairs):
        seed, took = random.getrandbits(31), {}
        for mode in ("off", "lookup") if pair % 2 else ("lookup", "off"):
            random.seed(seed)
            submit(engines[mode], 94, 300, parameters)
            took[mode] = time_of(partial(drain, engines[mode]))
        if pair >= 0:
            ratios.append(took["off"] / took["lookup"])
    return ratios


def drain(engine: TextEngine) -> None:
    while engine.has_work:
        engine.step()


def steps(engine: TextEngine, count: int) -> None:
    for _ in range(count):
        engine.step()


def adapters(folder: Path, pairs: int, of_four: int) -> list[float]:
    """Return the throughput beside that without adapters, by the processor's time.

    Args:
        of_four: Rows among four that apply an adapter.
    """
    with TemporaryDirectory() as scratch:
        folders = [make_adapter(folder, Path(scratch) / f"{n}", 16, ADAPTED, seed=n) for n in range(4)]
        applied = [AppliedAdapter(each.name, str(each)) for each in folders]
        plain, adapted = (Driver(folder, model=load_model(folder, Settings())) for _ in range(2))
        for each in applied:
            adapted.submit(ADAPTED_PROMPT, 1, applied=each)
            adapted.run()
        for driver in (plain, adapted):
            for row in range(16):
                uses = driver is adapted and row % 4 < of_four
                chosen = applied[(row + row // 4) % 4] if uses else None
                driver.submit(ADAPTED_PROMPT, 100_000, applied=chosen, stop_token_ids=frozenset())
            steps(driver.engine, BLOCK)
        ratios = []
        for pair in range(pairs):
            took = dict.fromkeys((plain, adapted), 0.0)
            for turn in range(8):
                driver = (plain, adapted)[(turn + turn // 2 + pair) % 2]
                began = time.process_time()
                steps(driver.engine, TURN)
                took[driver] += time.process_time() - began
            ratios.append(took[plain] / took[adapted])
        return ratios


def time_of(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


if __name__ == "__main__":
    *words, last = sys.argv[2:] or ["7"]
    if not last.isdecimal():
        words, last = [*words, last], "7"
    main(Path(sys.argv[1]), words, int(last))
