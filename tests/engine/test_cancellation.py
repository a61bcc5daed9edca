"""Tests of cancellation: the request that stops, those that continue, and the last event."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from greenroom.engine.resources.memory_account import MemoryAccount
from greenroom.engine.text.scheduler.prefill_policy import PrefillPolicy
from greenroom.schemas.events.events import Finished, PromptProgress
from greenroom.schemas.messages.generation import GenerationParameters
from greenroom.tests.support.engines.text_engines import Driver, expected, finished

TinyModel = Callable[..., Path]
PROMPT = tuple(range(100, 140))
OTHER = tuple(range(500, 520))


def test_a_cancelled_request_ends_at_the_next_step_and_its_neighbour_goes_on(tiny_model: TinyModel) -> None:
    folder = tiny_model("qwen3")
    driver = Driver(folder)
    driver.submit(PROMPT, 60)
    driver.submit(OTHER, 60)
    for _ in range(10):
        driver.step()
    driver.engine.cancel("0")
    driver.engine.cancel("0")
    driver.engine.cancel("unknown")
    driver.step()
    last = finished(driver.events["0"])
    assert last.reason == "cancelled"
    assert 0 < last.usage.generated < 60
    assert driver.engine.statistics().requests == 1
    driver.run()
    assert driver.tokens[1] == expected(folder, OTHER, 60)


def test_a_prompt_is_cancelled_between_its_chunks(tiny_model: TinyModel) -> None:
    driver = Driver(tiny_model("qwen3"), PrefillPolicy(min_chunk=16, max_chunk=16))
    driver.submit(range(100, 1100), 5)
    driver.step()
    driver.step()
    driver.engine.cancel("0")
    driver.step()
    *progress, last = driver.events["0"]
    assert [event.processed for event in progress if isinstance(event, PromptProgress)] == [16, 32]
    assert isinstance(last, Finished)
    assert last.usage.generated == 0
    assert not driver.engine.has_work


def test_a_prompt_cancelled_when_it_is_computed_is_not_decoded(tiny_model: TinyModel) -> None:
    folder = tiny_model("qwen3")
    driver = Driver(folder)
    for prompt in (PROMPT, PROMPT[:-1], OTHER):
        driver.submit(prompt, 20)
    while not driver.engine.statistics().prefilled:
        driver.step()
    driver.engine.cancel("0")
    driver.step()
    assert finished(driver.events["0"]).reason == "cancelled"
    statistics = driver.engine.statistics()
    assert (statistics.prefilling, statistics.prefilled, statistics.decoding) == (0, 0, 2)
    driver.run()
    assert driver.tokens[0] == []
    assert driver.tokens[1] == expected(folder, PROMPT[:-1], 20)
    assert driver.tokens[2] == expected(folder, OTHER, 20)


def test_a_request_that_is_cancelled_while_it_waits_was_queued_only(tiny_model: TinyModel) -> None:
    driver = Driver(tiny_model("qwen3"), account=MemoryAccount(kv_limit=1 << 21))
    driver.submit(PROMPT, 400)
    driver.submit(OTHER, 400)
    while driver.engine.statistics().decoding == 0:
        driver.step()
    assert driver.engine.statistics().waiting == 1
    driver.engine.cancel("1")
    driver.step()
    last = finished(driver.events["1"])
    assert (last.reason, last.usage.prompt, last.usage.generated) == ("cancelled", len(OTHER), 0)
    assert last.timing.queued > 0
    assert (last.timing.prefill, last.timing.decode) == (0, 0)


def test_choices_that_are_cancelled_in_prefill_say_what_their_prompt_took(tiny_model: TinyModel) -> None:
    driver = Driver(tiny_model("qwen3"), PrefillPolicy(min_chunk=16, max_chunk=16))
    driver.submit(range(100, 1100), 5, GenerationParameters(n=2, seed=1))
    driver.step()
    driver.step()
    driver.engine.cancel("0")
    driver.step()
    ends = [event for event in driver.events["0"] if isinstance(event, Finished)]
    assert [end.index for end in ends] == [0, 1]
    for end in ends:
        assert (end.reason, end.usage.prompt, end.usage.generated) == ("cancelled", 1000, 0)
        assert end.timing.prefill > 0
        assert end.timing.decode == 0


def test_a_request_that_is_cancelled_amid_decoding_has_what_it_used(tiny_model: TinyModel) -> None:
    driver = Driver(tiny_model("qwen3"))
    driver.submit(PROMPT, 400)
    while len(driver.tokens[0]) < 7:
        driver.step()
    driver.engine.cancel("0")
    driver.run()
    last = finished(driver.events["0"])
    assert (last.usage.prompt, last.usage.generated) == (len(PROMPT), len(driver.tokens[0]))
    assert min(last.timing.prefill, last.timing.decode) > 0
