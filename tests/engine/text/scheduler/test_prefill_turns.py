"""Tests of the order in which prompts are prefilled."""

from __future__ import annotations

import pytest

from greenroom.engine.text.scheduler.prefill_policy import PrefillPolicy
from greenroom.engine.text.scheduler.prefill_queue import PrefillQueue
from greenroom.engine.text.scheduler.step_costs import StepCosts
from greenroom.tests.support.engines.sequences import sequence
from greenroom.tests.support.engines.text_engines import loaded
from greenroom.tests.support.models.tiny_models import TinyModel

STEP_MS = 5.0


def drained(queue: PrefillQueue) -> list[str]:
    """Compute all prompts; return the request ids of the chunks in order."""
    order: list[str] = []
    while queue.prefilling:
        reached, _ = queue.advance(decode_ms=STEP_MS)
        order += [prefilled.request_id for prefilled, _ in reached]
        queue.pop_prefilled()
    return order


@pytest.mark.deep
def test_whose_last_prompt_was_large_competes_as_a_newcomer_after_an_idle_time(tiny_model: TinyModel) -> None:
    queue = PrefillQueue(loaded(tiny_model("qwen3"))[0], PrefillPolicy(), StepCosts())
    queue.add(sequence("large", 1500), "before")
    queue.add(sequence("small", 10), "other")
    assert {*drained(queue)} == {"large", "small"}
    queue.add(sequence("again", 900), "before")
    queue.add(sequence("new", 100), "new")
    assert drained(queue)[0] == "again"
