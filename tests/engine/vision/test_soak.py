"""Chats about images and about none, arriving at random, cancelled at random: each is as it is alone."""

from __future__ import annotations

import random

import pytest

from greenroom.engine.memory.account import MemoryAccount
from greenroom.engine.prefix_cache.prefix_cache import PrefixCache
from greenroom.tests.support.text_engines import finished
from greenroom.tests.support.tiny_vision_kinds import VISION_KINDS
from greenroom.tests.support.tiny_vision_models import TinyVisionModel
from greenroom.tests.support.vision_engines import Parts, VisionDriver, expected, picture

CHATS, CONCURRENT = 24, 8


def _chat(choose: random.Random, number: int) -> Parts:
    """Return a prompt: every other one with one or two of a few images, some beginnings in common."""
    words = " ".join(choose.choices(["red", "tall", "why", "where", "below", "the", "of"], k=12))
    if number % 2:
        return [f"Tell me {words}"]
    shown = [
        picture(choose.randrange(5), choose.choice([60, 100, 300])) for _ in range(choose.choice([1, 2]))
    ]
    between = [" beside " if index else "Look at " for index in range(len(shown))]
    parts: list[object] = [part for pair in zip(between, shown, strict=True) for part in pair]
    return [*parts, f" {words}"]  # type: ignore[list-item]


@pytest.mark.soak
@pytest.mark.parametrize("kv_megabytes", [64, 8])
@pytest.mark.parametrize("kind", VISION_KINDS)
def test_eight_chats_at_a_time_are_as_each_alone(
    tiny_vision_model: TinyVisionModel, kind: str, kv_megabytes: int
) -> None:
    folder = tiny_vision_model(kind)
    choose = random.Random(kind)
    account = MemoryAccount(kv_limit=kv_megabytes << 20)
    driver = VisionDriver(folder, account=account, options={"prefix_cache": PrefixCache(16 << 20)})
    driver.engine.admission.max_reserved_tokens = 8
    chats = [_chat(choose, number) for number in range(CHATS)]
    lengths = [choose.randrange(5, 60) for _ in chats]
    cancelled = set(choose.sample(range(CHATS), 4))
    submitted = 0
    while submitted < CHATS or driver.engine.has_work:
        if submitted < CHATS and driver.engine.statistics().requests < CONCURRENT and choose.random() < 0.3:
            driver.submit(chats[submitted], lengths[submitted])
            submitted += 1
        if choose.random() < 0.05 and cancelled & set(range(submitted)):
            driver.engine.cancel(str(choose.choice(sorted(cancelled & set(range(submitted))))))
        driver.step()
        assert account.statistics().peak <= kv_megabytes << 20
    for number, chat in enumerate(chats):
        wanted = expected(folder, chat, lengths[number])
        written = driver.tokens[number]
        assert written == wanted[: len(written)]
        if finished(driver.events[str(number)]).reason != "cancelled":
            assert len(written) == lengths[number]
