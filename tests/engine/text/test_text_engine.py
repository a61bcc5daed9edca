"""Tests of the text engine's requests: their ends, cancellation, faults, and release of resources."""

from __future__ import annotations

import gc
from collections.abc import Callable
from collections.abc import Sequence as GenericSequence
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
import pytest

from greenroom.engine.loading.load_model import load_model
from greenroom.engine.text.prefix_cache.prefix_cache import PrefixCache
from greenroom.engine.text.scheduler.prefill_policy import PrefillPolicy
from greenroom.engine.text.sequence_outputs import Processor
from greenroom.engine.text.text_engine import TextEngine
from greenroom.schemas.events.events import (
    Failed,
    InferenceEvent,
    PromptProgress,
)
from greenroom.schemas.messages.generation import GenerationParameters
from greenroom.schemas.messages.prepared_input import PreparedPrompt
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.engines.text_engines import (
    GREEDY,
    Driver,
    RecordingOutputProcessor,
    check_cached,
    expected,
    finished,
    loaded,
    text_of,
)

TinyModel = Callable[..., Path]
PROMPT = tuple(range(100, 140))
OTHER = tuple(range(500, 520))


def test_max_tokens_end_an_answer_with_length(tiny_model: TinyModel) -> None:
    driver = Driver(tiny_model("qwen3"))
    driver.submit(PROMPT, 5)
    driver.run()
    last = finished(driver.events["0"])
    assert (last.reason, last.stop, last.usage.prompt, last.usage.generated) == ("length", None, 40, 5)
    assert last.timing.prefill > 0
    assert last.timing.decode > 0
    assert not driver.engine.has_work
    assert driver.engine.statistics().requests == 0


def test_a_stop_token_ends_an_answer_and_is_no_part_of_it(tiny_model: TinyModel) -> None:
    folder = tiny_model("qwen3")
    answer = expected(folder, PROMPT, 20)
    driver = Driver(folder)
    driver.submit(PROMPT, 20, stop_token_ids=frozenset({answer[7]}))
    driver.submit(PROMPT, 20, GenerationParameters(temperature=0.0, stop_token_ids=(answer[9],)))
    driver.run()
    for request_id, end in (("0", 7), ("1", 9)):
        last = finished(driver.events[request_id])
        assert (last.reason, last.stop, last.usage.generated) == ("stop", None, end + 1)
        assert driver.tokens[int(request_id)] == answer[:end]


def test_a_stop_string_ends_an_answer_across_tokens(tiny_model: TinyModel) -> None:
    folder = tiny_model("llama")
    driver = Driver(folder)
    driver.submit(PROMPT, 40)
    driver.run()
    text = text_of(driver.events["0"])
    stop = text[30:37]
    assert text.index(stop) == 30
    driver.submit(PROMPT, 40, stop=("never there", stop))
    driver.run()
    last = finished(driver.events["1"])
    assert (last.reason, last.stop) == ("stop", stop)
    assert text_of(driver.events["1"]) == text[:30]
    assert last.usage.generated < 40


@pytest.mark.parametrize("kind", ["qwen3", "gemma3"])
def test_text_is_what_the_tokens_spell(tiny_model: TinyModel, kind: str) -> None:
    """Random output is full of characters split over tokens, and of invalid bytes."""
    folder = tiny_model(kind)
    driver = Driver(folder)
    for start in range(100, 160, 10):
        driver.submit(range(start, start + 10), 50, parse=True)
    driver.run()
    for events, tokens in zip(driver.events.values(), driver.tokens, strict=True):
        whole = loaded(folder)[1].tokenizer.decode(tokens)
        assert text_of(events) == whole


@pytest.mark.deep
def test_a_short_prompt_overtakes_a_long_one(tiny_model: TinyModel) -> None:
    driver = Driver(tiny_model("qwen3"), PrefillPolicy(min_chunk=32, max_chunk=32))
    driver.submit([100 + i % 1000 for i in range(2000)], 3)
    driver.step()
    driver.submit(OTHER, 3)
    driver.run()
    order = [
        request_id
        for request_id, _ in sorted(
            ((key, finished(events).timing.prefill) for key, events in driver.events.items()),
            key=lambda pair: pair[1],
        )
    ]
    assert order == ["1", "0"]
    steps_of_long = [e for e in driver.events["0"] if isinstance(e, PromptProgress)]
    assert len(steps_of_long) == 2000 // 32 + 1


def test_progress_grows_to_the_whole_prompt(tiny_model: Callable[..., Path]) -> None:
    driver = Driver(tiny_model("qwen3"), PrefillPolicy(min_chunk=64, max_chunk=64))
    driver.submit(range(100, 300), 4)
    driver.run()
    progress = [event for event in driver.events["0"] if isinstance(event, PromptProgress)]
    assert [event.processed for event in progress] == [64, 128, 192, 200]
    assert {event.total for event in progress} == {200}


def test_an_empty_prompt_is_refused(tiny_model: TinyModel) -> None:
    driver = Driver(tiny_model("qwen3"))
    driver.submit((), 5)
    driver.run()
    (event,) = driver.events["0"]
    assert isinstance(event, Failed)
    assert event.problem.status == 400


class BreakingProcessor:
    """A stream processor that raises after some tokens, or at its end."""

    def __init__(self, processor: Processor, left: int) -> None:
        self._processor, self._left = processor, left

    def __getattr__(self, name: str) -> Any:
        return getattr(self._processor, name)

    def feed(self, text: str, tokens: int = 1, *control: Any) -> GenericSequence[InferenceEvent]:
        self._left -= tokens
        if self._left < 0:
            raise RuntimeError("out of order")
        return self._processor.feed(text, tokens, *control)

    def finish(self, *, ended_by_model: bool = True) -> GenericSequence[InferenceEvent]:
        raise RuntimeError("out of order")


class BreakingOutputProcessor(RecordingOutputProcessor):
    """An adapter whose stream processor fails for the first answer, after `left` tokens."""

    left = 5

    def new_stream_processor(
        self, prepared: PreparedPrompt, new_call_id: Callable[[], str], index: int = 0
    ) -> Processor:
        processor = super().new_stream_processor(prepared, new_call_id, index)
        return processor if len(self.tokens) > 1 else cast(Processor, BreakingProcessor(processor, self.left))


def test_what_breaks_in_one_requests_text_costs_that_request_only(tiny_model: TinyModel) -> None:
    folder = tiny_model("qwen3")
    driver = Driver(folder)
    driver.output_processor = BreakingOutputProcessor(loaded(folder)[1])
    driver.engine = TextEngine(loaded(folder)[0], driver.output_processor)
    driver.submit(PROMPT, 30)
    driver.submit(OTHER, 30)
    driver.run()
    last = driver.events["0"][-1]
    assert isinstance(last, Failed)
    assert last.problem.status == 500
    assert len(driver.tokens[0]) == 6
    assert last.usage is not None
    assert last.timing is not None
    assert (last.usage.prompt, last.usage.generated) == (len(PROMPT), 6)
    assert last.timing.decode > 0
    assert driver.tokens[1] == expected(folder, OTHER, 30)
    assert driver.engine.statistics().requests == 0


def test_a_choice_that_fails_takes_the_others_along_and_leaves_no_wrong_prefix(tiny_model: TinyModel) -> None:
    folder = tiny_model("qwen3")
    driver = Driver(folder)
    driver.output_processor = BreakingOutputProcessor(loaded(folder)[1])
    driver.output_processor.left = 40
    driver.engine = TextEngine(loaded(folder)[0], driver.output_processor, prefix_cache=PrefixCache(1 << 26))
    driver.submit(PROMPT, 60, GenerationParameters(seed=1, n=2))
    driver.run()
    assert [len(tokens) for tokens in driver.tokens] == [41, 40]
    check_cached(folder, driver.engine.prefix_cache, (*PROMPT, *driver.tokens[0]))
    driver.submit((*PROMPT, *driver.tokens[1]), 30)
    driver.run()
    assert driver.tokens[2] == expected(folder, (*PROMPT, *driver.tokens[1]), 30)


def test_an_answer_whose_end_fails_frees_its_row(tiny_model: TinyModel) -> None:
    folder = tiny_model("qwen3")
    driver = Driver(folder)
    driver.output_processor = BreakingOutputProcessor(loaded(folder)[1])
    driver.engine = TextEngine(loaded(folder)[0], driver.output_processor, max_rows=1)
    driver.submit(PROMPT, 3)
    driver.submit(OTHER, 8)
    for _ in range(30):
        driver.step()
    assert isinstance(driver.events["0"][-1], Failed)
    assert driver.tokens == [expected(folder, PROMPT, 3), expected(folder, OTHER, 8)]
    assert not driver.engine.has_work


def test_a_choice_that_fails_as_it_is_cut_ends_its_request_once(
    tiny_model: TinyModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tiny_model("qwen3")
    driver = Driver(folder)
    driver.output_processor = BreakingOutputProcessor(loaded(folder)[1])
    driver.engine = TextEngine(loaded(folder)[0], driver.output_processor)
    name = driver.submit(PROMPT, 60, GenerationParameters(seed=1, n=2))
    (first,) = driver.engine._outputs.sequences.values()
    first.metrics.started_at = 1.0  # It was preempted, and fits no more.
    monkeypatch.setattr(driver.engine.admission, "admit_waiting", lambda: [first])
    driver.step()
    assert [type(event) for event in driver.events[name]] == [Failed]


class FaultyModel:
    """A model that raises at one of its calls."""

    def __init__(self, model: Any, calls: int) -> None:
        self._model, self._calls = model, calls

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        self._calls -= 1
        if self._calls < 0:
            raise RuntimeError("out of order")
        return self._model(*arguments, **options)


def test_what_breaks_in_the_model_is_raised(tiny_model: TinyModel) -> None:
    driver = Driver(tiny_model("qwen3"))
    model, adapter = loaded(tiny_model("qwen3"))
    driver.engine = TextEngine(FaultyModel(model, 5), adapter)
    driver.submit(PROMPT, 30)
    with pytest.raises(RuntimeError, match="out of order"):
        driver.run()


@pytest.mark.parametrize("kind", ["qwen3", "gemma3"])
def test_a_prompt_may_come_as_embeddings(tiny_model: TinyModel, kind: str) -> None:
    folder = tiny_model(kind)
    model, _ = loaded(folder)
    embeddings = model.model.embed_tokens(mx.array(PROMPT))
    driver = Driver(folder, PrefillPolicy(min_chunk=16, max_chunk=16))
    driver.submit(OTHER, 30)
    driver.step()
    driver.submit([7] * (len(PROMPT) - 1) + [PROMPT[-1]], 30, embeddings=embeddings)
    driver.run()
    assert driver.tokens == [expected(folder, OTHER, 30), expected(folder, PROMPT, 30)]


def test_mixed_settings_leave_greedy_answers_as_they_are(tiny_model: TinyModel) -> None:
    folder = tiny_model("qwen3")
    driver = Driver(folder)
    settings: list[dict[str, Any]] = [{"temperature": 1.0}, {"top_k": 5}, {"top_p": 0.5}, {"min_p": 0.1}]
    driver.submit(PROMPT, 30)
    for setting in settings:
        driver.submit(OTHER, 20, GenerationParameters(**setting))
    driver.submit(OTHER, 30, GREEDY)
    driver.run()
    assert driver.tokens[0] == expected(folder, PROMPT, 30)
    assert driver.tokens[-1] == expected(folder, OTHER, 30)
    assert all(len(tokens) == 20 for tokens in driver.tokens[1:-1])


def test_nothing_of_a_model_is_left_after_close(tiny_model: TinyModel) -> None:
    folder = tiny_model("mistral")
    adapter = loaded(tiny_model("qwen3"))[1]
    gc.collect()
    mx.clear_cache()
    before = mx.get_active_memory()
    for _ in range(3):
        driver = Driver(tiny_model("qwen3"))
        driver.engine = TextEngine(load_model(folder, Settings()), adapter)
        driver.submit(PROMPT, 30)
        driver.submit(OTHER, 30)
        for _ in range(8):
            driver.step()
        assert mx.get_active_memory() > before + 1_000_000
        driver.engine.close()
        gc.collect()
        assert mx.get_active_memory() <= before
        assert not driver.engine.has_work
