"""Recurrent states are copied, extracted and kept with their own row, beside quantized keys too."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from greenroom.engine.text.prefix_cache.prefix_cache import PrefixCache
from greenroom.engine.text.scheduler.prefill_policy import PrefillPolicy
from greenroom.engine.text.scheduler.running_batches import BatchPolicy
from greenroom.schemas.messages.generation import GenerationParameters
from greenroom.tests.support.architectures.recurrent_kinds import RECURRENT
from greenroom.tests.support.engines.schedules import soak_only
from greenroom.tests.support.engines.text_engines import GREEDY, Driver

CHOICES = GenerationParameters(temperature=0.0, n=3)
SAMPLED = GenerationParameters(temperature=0.9, seed=5, n=2)

LENGTHS = (40, 1, 36, 3, 70, 38)

BRANCHES = ((500,), (600, 7, 8, 9), tuple(range(700, 740)))
"""Continuations of a shared prompt prefix; states are stored where the prompts diverge."""

OTHERS = [kind for kind in RECURRENT if kind != "nemotron_h"]

Request = tuple[tuple[int, ...], GenerationParameters]


def requests() -> list[Request]:
    prompts = [tuple(random.Random(length).choices(range(10, 2000), k=length)) for length in LENGTHS]
    shared = tuple(random.Random(99).choices(range(10, 2000), k=30))
    prompts += [(*shared, *branch) for branch in BRANCHES]
    return [(prompt, (GREEDY, CHOICES, SAMPLED)[index % 3]) for index, prompt in enumerate(prompts)]


def answers(driver: Driver, submitted: Sequence[Request]) -> Counter[tuple[int, ...]]:
    """Return the token ids of all choices; two more requests arrive every third step."""
    driver.restart()
    waiting, step = list(submitted), 0
    while waiting or driver.engine.has_work:
        for prompt, parameters in waiting[:2] if step % 3 == 0 else ():
            driver.submit(prompt, 16, parameters)
            waiting = waiting[1:]
        driver.step()
        step += 1
    return Counter(map(tuple, driver.tokens))


@pytest.mark.deep
@pytest.mark.parametrize("kv_bits", [8, *soak_only(None, 4)])
@pytest.mark.parametrize("kind", ["nemotron_h", *soak_only("lfm2", "recurrent_gemma", "qwen3_next", *OTHERS)])
def test_answers_are_those_of_each_alone(
    tiny_model: Callable[..., Path], kind: str, kv_bits: int | None
) -> None:
    folder = tiny_model(kind)
    wanted = Counter[tuple[int, ...]]()
    for request in requests():
        wanted += answers(Driver(folder, kv_bits=kv_bits), [request])
    driver = Driver(
        folder,
        PrefillPolicy(min_chunk=32, max_chunk=128),
        PrefixCache(1 << 28),
        BatchPolicy(1e-6),
        kv_bits=kv_bits,
    )
    for _ in range(2):  # the second time behind what is kept of the first
        assert answers(driver, requests()) == wanted
