"""What comes out of our loop is what `mlx_lm.generate` says, token for token, whoever runs beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from greenroom.engine.batch import caches
from greenroom.engine.batch.prefill_policy import PrefillPolicy
from greenroom.schemas.events import Failed, Finished, PromptProgress
from greenroom.tests.text_engines import Driver, expected
from greenroom.tests.tiny_models import FAMILIES, SPECIAL_TOKENS, VOCABULARY

ALL_KINDS = (*FAMILIES, "ministral", "granite", "lfm2")
"""With interleaved sliding windows, and with a hybrid of convolutions and attention."""

tokens = st.integers(len(SPECIAL_TOKENS), VOCABULARY - 1)
lengths = st.sampled_from([1, 2, 3, 17, 31, 32, 33, 34, 70, 150])
"""Around the sliding window of 32, and beyond several of them."""


@attrs.frozen
class Visit:
    """A row's stay in the batch.

    Args:
        at: Step before which it is submitted.
        cancelled: Step before which it is cancelled, if it is still there.
    """

    at: int
    prompt: tuple[int, ...]
    count: int
    cancelled: int | None


@st.composite
def visits(draw: st.DrawFn) -> Visit:
    seed = draw(tokens)
    length = draw(lengths)
    span = VOCABULARY - len(SPECIAL_TOKENS)
    prompt = tuple(len(SPECIAL_TOKENS) + (seed * 31 + i * i * 7 + i * seed) % span for i in range(length))
    at = draw(st.integers(0, 40))
    leaves = draw(st.none() | st.integers(1, 30))
    count = draw(st.sampled_from([1, 2, 5, 24, 60]))
    return Visit(at, prompt, count, None if leaves is None else at + leaves)


def drive(driver: Driver, schedule: list[Visit]) -> None:
    """Let rows come and go as scheduled, and run until all are done."""
    pending = sorted(schedule, key=lambda visit: visit.at)
    ids: dict[int, str] = {}
    step = 0
    while len(ids) < len(pending) or driver.engine.has_work:
        for number, visit in enumerate(pending):
            if visit.at == step:
                ids[number] = driver.submit(visit.prompt, visit.count)
            if visit.cancelled == step and number in ids:
                driver.engine.cancel(ids[number])
        driver.step()
        step += 1


def check(folder: Path, driver: Driver, schedule: list[Visit]) -> None:
    """Every row ended as it should, with mlx-lm's tokens; a cancelled one has a beginning of them."""
    ordered = sorted(schedule, key=lambda visit: visit.at)
    for visit, got, events in zip(ordered, driver.tokens, driver.events.values(), strict=True):
        last = events[-1]
        assert isinstance(last, Finished)
        assert sum(isinstance(event, Finished | Failed) for event in events) == 1
        assert last.usage.generated == len(got)
        if last.reason == "length":
            assert len(got) == visit.count
        else:
            assert (last.reason, visit.cancelled is None) == ("cancelled", False)
        assert got == expected(folder, visit.prompt, visit.count, driver.kv_bits)[: len(got)]


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_a_lone_row_is_mlx_lms(tiny_model: Callable[..., Path], kind: str) -> None:
    folder = tiny_model(kind)
    driver = Driver(folder)
    prompt = tuple(range(100, 140))
    driver.submit(prompt, 120)
    driver.run()
    assert driver.tokens == [expected(folder, prompt, 120)]


@pytest.mark.parametrize("kind", ALL_KINDS)
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    schedule=st.lists(visits(), min_size=2, max_size=7),
    slice_tokens=st.sampled_from([1, 7, 32, 64, 512]),
)
def test_rows_are_mlx_lms_whoever_comes_and_goes(
    tiny_model: Callable[..., Path], kind: str, schedule: list[Visit], slice_tokens: int
) -> None:
    folder = tiny_model(kind)
    driver = Driver(folder, PrefillPolicy(least_tokens=slice_tokens, most_tokens=slice_tokens))
    drive(driver, schedule)
    check(folder, driver, schedule)


CROWD = [
    Visit(0, tuple(range(100, 140)), 60, None),
    Visit(0, tuple(range(300, 320)), 20, None),
    Visit(3, tuple(range(700, 750)), 60, None),
    Visit(9, tuple(range(900, 905)), 40, 30),
    Visit(12, tuple(range(1200, 1280)), 40, None),
]


def is_faithful(folder: Path) -> bool:
    driver = Driver(folder)
    drive(driver, CROWD)
    ordered = sorted(CROWD, key=lambda visit: visit.at)
    return all(
        got == expected(folder, visit.prompt, visit.count)[: len(got)]
        for visit, got in zip(ordered, driver.tokens, strict=True)
    )


@pytest.fixture(params=FAMILIES)
def folder(request: pytest.FixtureRequest, tiny_model: Callable[..., Path]) -> Iterator[Path]:
    """A model whose crowd comes out right as soon as nothing is planted any more."""
    folder = tiny_model(request.param)
    yield folder
    assert is_faithful(folder)


def test_a_lost_prompt_token_shows(folder: Path) -> None:
    """Planted: the slice that a prompt is computed in begins one token late."""
    from greenroom.engine.batch import prefill

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            prefill._Prompt, "remaining", property(lambda self: len(self.row.prompt) - 2 - self.done)
        )
        assert not is_faithful(folder)


def test_a_mask_that_is_off_by_one_shows(folder: Path) -> None:
    """Planted: batched rows see one position of their padding, or miss their first token."""
    merge = caches.merge

    for shift in (-1, 1):

        def shifted(plain: Any, shift: int = shift) -> Any:
            cache = merge(plain)
            for layer in cache:
                layer.left_padding = layer.left_padding + shift
            return cache

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(caches, "merge", shifted)
            assert not is_faithful(folder)


def test_a_stale_cache_row_shows(folder: Path) -> None:
    """Planted: when rows are cut out, the last of the cache stays where it was and its neighbour goes."""
    keep_rows = caches.keep_rows

    def stale(cache: Any, rows: list[int]) -> None:
        keep_rows(cache, [*rows[:-1], max(rows[-1] - 1, 0)])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(caches, "keep_rows", stale)
        assert not is_faithful(folder)


def test_progress_grows_to_the_whole_prompt(tiny_model: Callable[..., Path]) -> None:
    driver = Driver(tiny_model("qwen3"), PrefillPolicy(least_tokens=64, most_tokens=64))
    driver.submit(range(100, 300), 4)
    driver.run()
    progress = [event for event in driver.events["0"] if isinstance(event, PromptProgress)]
    assert [event.processed for event in progress] == [64, 128, 192, 200]
    assert {event.total for event in progress} == {200}
