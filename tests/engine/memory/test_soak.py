"""Thousands of requests under a small account: its limit holds, and nothing is leaked."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable
from pathlib import Path

import attrs
import mlx.core as mx
import pytest

from greenroom.engine.resources.account import MemoryAccount
from greenroom.engine.text.prefix_cache.prefix_cache import PrefixCache
from greenroom.schemas.events.events import Finished
from greenroom.schemas.messages.generation import GenerationParameters
from greenroom.tests.support.engines.text_engines import Driver

MEGABYTE = 1 << 20
LIMIT = 64 * MEGABYTE
REQUESTS = 2000
AT_ONCE = 100

SYSTEM = tuple(random.Random(0).choices(range(300, 2000), k=400))


@attrs.define
class Watch:
    """Tracks MLX's memory beyond the weights and the account, in bytes."""

    weights: int
    most_active: int = 0
    most_beyond: int = 0
    idle: list[int] = attrs.field(factory=list)

    def step(self, account: MemoryAccount) -> None:
        now = account.statistics()
        active = mx.get_active_memory() - self.weights
        self.most_active = max(self.most_active, active)
        self.most_beyond = max(self.most_beyond, active - now.running - now.cached)

    def rest(self, account: MemoryAccount) -> None:
        mx.synchronize()
        self.idle.append(mx.get_active_memory() - self.weights - account.statistics().cached)


def parameters(choose: random.Random) -> GenerationParameters:
    """Generate any mixture of parameters that change how a sequence is computed."""
    return GenerationParameters(
        temperature=choose.choice([0.0, 0.7, 1.0]),
        seed=choose.randrange(1000),
        top_p=choose.choice([1.0, 0.9]),
        repetition_penalty=choose.choice([1.0, 1.0, 1.2]),
        presence_penalty=choose.choice([0.0, 0.0, 0.5]),
        logprobs=choose.random() < 0.1,
        n=2 if choose.random() < 0.05 else 1,
    )


def submit(driver: Driver, choose: random.Random) -> str:
    prompt = choose.choices(range(300, 2000), k=int(math.exp(choose.uniform(1, math.log(500)))))
    if choose.random() < 0.3:
        prompt = [*SYSTEM, *prompt[:100]]
    return driver.submit(prompt, int(math.exp(choose.uniform(0, math.log(150)))), parameters(choose))


@pytest.mark.soak
def test_the_account_holds_over_thousands_of_requests(
    tiny_model: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    account, choose = MemoryAccount(kv_limit=LIMIT), random.Random(7)
    driver = Driver(tiny_model("qwen3"), prefix_cache=PrefixCache(LIMIT), account=account)
    driver.engine.admission.preemption.max_reserved_tokens = 16  # or else nobody would ever be stopped
    mx.synchronize()
    mx.clear_cache()
    mx.reset_peak_memory()
    watch = Watch(mx.get_active_memory())
    pending = REQUESTS
    while pending or driver.engine.has_work:
        # All sequences end now and then, so that leaks show.
        rests = (REQUESTS - pending) % 125 == 0 and driver.engine.statistics().requests
        while pending and not rests and driver.engine.statistics().requests < AT_ONCE:
            name = submit(driver, choose)
            pending -= 1
            if choose.random() < 0.1:
                driver.step()
                driver.engine.cancel(name)
            rests = pending % 125 == 0
        driver.step()
        watch.step(account)
        assert account.statistics().peak <= LIMIT
        if not driver.engine.has_work:
            watch.rest(account)
    for events in driver.events.values():
        assert isinstance(events[-1], Finished), events[-1]
    admission, held = driver.engine.statistics().admission, account.statistics()
    assert admission.preempted > 0
    assert admission.cut == 0
    assert held.running == 0
    quarter = len(watch.idle) // 4
    first, last = statistics.median(watch.idle[:quarter]), statistics.median(watch.idle[-quarter:])
    with capsys.disabled():
        print(
            f"\naccount at most {held.peak / MEGABYTE:.1f} MB; MLX beyond weights at most "
            f"{watch.most_active / MEGABYTE:.1f} MB after a step, "
            f"{(mx.get_peak_memory() - watch.weights) / MEGABYTE:.1f} MB within one; beyond the account "
            f"{watch.most_beyond / MEGABYTE:.1f} MB; idle {first / MEGABYTE:.2f} and then "
            f"{last / MEGABYTE:.2f} MB; {admission}"
        )
    assert abs(last - first) < MEGABYTE // 4
