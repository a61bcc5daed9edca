"""Chats with and without images, at random times, some cancelled: each answer equals the one computed alone.

Some offer tools or require a call, some require JSON of a schema. The reference is mlx-vlm's own generation,
constrained token by token if there is a grammar.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pydantic_core
import pytest

from greenroom.engine.resources.memory_account import MemoryAccount
from greenroom.engine.text.prefix_cache.prefix_cache import PrefixCache
from greenroom.engine.vision.vision_adapter import VisionAdapter
from greenroom.schemas.events.events import InferenceEvent, ReasoningDelta, ToolCallDelta
from greenroom.tests.support.engines.text_engines import finished, text_of
from greenroom.tests.support.engines.vision_adapters import seeing_adapter
from greenroom.tests.support.engines.vision_chats import DEMANDS, RandomChats, VisionChat, answer_of_library
from greenroom.tests.support.engines.vision_engines import VisionDriver
from greenroom.tests.support.grammars.grammar_walks import validate
from greenroom.tests.support.models.tiny_vision_kinds import VISION_KINDS
from greenroom.tests.support.models.tiny_vision_models import TinyVisionModel

CHATS, CONCURRENT = 4 * len(DEMANDS), 8
_TIGHT = {"gemma3": 3, "smolvlm": 4}
"""Cache memory in megabytes at which sequences must be preempted; eight for the other kinds."""

SEEDS = (1,)


@cache
def _solo(folder: Path, seed: int) -> tuple[VisionAdapter, Sequence[VisionChat], VisionDriver]:
    """Return an adapter, chats, and a driver that has answered each alone, as mlx-vlm does."""
    adapter = seeing_adapter(folder)
    made = RandomChats(adapter, f"{folder.name} {seed}")
    chats = [made.chat(number) for number in range(CHATS)]
    driver = VisionDriver(folder, adapter=adapter)
    for number, chat in enumerate(chats):
        driver.submit_chat(chat.request)
        driver.run()
        assert driver.tokens[number] == answer_of_library(folder, adapter, chat), chat
        _check_demand(chat, driver.events[chat.request.id])
    return adapter, chats, driver


@pytest.mark.soak
@pytest.mark.parametrize("tight", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", VISION_KINDS)
def test_eight_chats_at_a_time_are_as_each_alone(
    tiny_vision_model: TinyVisionModel, kind: str, seed: int, tight: bool
) -> None:
    folder = tiny_vision_model(kind)
    adapter, chats, alone = _solo(folder, seed)
    megabytes = _TIGHT.get(kind, 8) if tight else 64
    together = _run_together(folder, adapter, chats, megabytes << 20, seed)
    for number, chat in enumerate(chats):
        written, events = together.tokens[number], together.events[chat.request.id]
        assert written == alone.tokens[number][: len(written)], chat
        if finished(events).reason != "cancelled":
            assert _read(events) == _read(alone.events[chat.request.id]), chat


def _run_together(
    folder: Path, adapter: VisionAdapter, chats: Sequence[VisionChat], kv_limit: int, seed: int
) -> VisionDriver:
    """Answer chats that arrive at random; some are cancelled."""
    choose = random.Random(f"{kv_limit} {seed}")
    account = MemoryAccount(kv_limit=kv_limit)
    driver = VisionDriver(
        folder, account=account, options={"prefix_cache": PrefixCache(16 << 20)}, adapter=adapter
    )
    driver.engine.admission.preemption.max_reserved_tokens = 8
    cancelled = choose.sample(range(len(chats)), 4)
    submitted = 0
    while submitted < len(chats) or driver.engine.has_work:
        has_room = driver.engine.statistics().requests < CONCURRENT
        if submitted < len(chats) and has_room and choose.random() < 0.3:
            driver.submit_chat(chats[submitted].request)
            submitted += 1
        if choose.random() < 0.05 and (arrived := [number for number in cancelled if number < submitted]):
            driver.engine.cancel(chats[choose.choice(arrived)].request.id)
        driver.step()
        assert account.statistics().peak <= kv_limit
    assert account.statistics().running == 0
    return driver


def _read(events: Sequence[InferenceEvent]) -> tuple[str, str, list[tuple[str, str]], str]:
    """Return the parts of an answer: reasoning, text, calls and finish reason."""
    thought = "".join(event.text for event in events if isinstance(event, ReasoningDelta))
    return thought, text_of(events), _calls(events), finished(events).reason


def _calls(events: Sequence[InferenceEvent]) -> list[tuple[str, str]]:
    calls: dict[int, tuple[str, str]] = {}
    for event in events:
        if isinstance(event, ToolCallDelta):
            name, arguments = calls.get(event.call, ("", ""))
            calls[event.call] = (name + (event.name or ""), arguments + event.arguments)
    return list(calls.values())


def _check_demand(chat: VisionChat, events: Sequence[InferenceEvent]) -> None:
    """Check that an answer, as far as it was generated, satisfies its chat's constraint."""
    thought, text, calls, reason = _read(events)
    assert not thought
    whole = reason != "length"
    if chat.demand == "schema" or (chat.demand == "schema or call" and not calls):
        if whole:
            validate(chat.schema, text)
        else:
            pydantic_core.from_json(text or '""', allow_partial=True)
    if chat.demand == "forced call" and whole:
        assert calls
    schemas = {tool.name: tool.parameters for tool in chat.input.tools}
    for name, arguments in calls if whole else calls[:-1]:
        validate(schemas[name], arguments)
