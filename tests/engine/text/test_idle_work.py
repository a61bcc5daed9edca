"""Tests of the idle batch-invariance check, after which rows are computed together."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from greenroom.engine.kv_cache.caches import can_batch, new_cache
from greenroom.engine.kv_cache.size_model import CacheSizeModel
from greenroom.engine.loading import batching, batching_table
from greenroom.engine.loading.batching import BackgroundCheck
from greenroom.engine.loading.batching_table import CheckResults
from greenroom.engine.loading.invariance_check import ROWS, TOKENS, InvarianceCheck
from greenroom.engine.loading.load_model import load_model
from greenroom.engine.resources.memory_account import MemoryAccount, Share
from greenroom.engine.text.text_engine import TextEngine
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.architectures.architectures import make_folder
from greenroom.tests.support.engines.fixed_costs import CountedClock, FixedCosts
from greenroom.tests.support.engines.schedules import deep_only
from greenroom.tests.support.engines.text_engines import Driver, expected

TinyModel = Callable[..., Path]
ModelOf = Callable[[str], Path]

DECODE_WRONG = ("afm7",)

PROMPTS = tuple(
    tuple(100 + (start + place * 7) % 1900 for place in range(20 + start)) for start in (0, 9, 31)
)
TOKENS_EACH = 24


@pytest.fixture(autouse=True)
def nothing_is_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Make the table ignore the installed mlx-lm, and leave loads no time for checks."""

    def table() -> Mapping[str, CheckResults]:
        return {}

    monkeypatch.setattr(batching, "table", table)
    monkeypatch.setattr(batching, "MIN_SECONDS", 0.0)
    monkeypatch.setattr(batching, "SHARE_OF_LOAD", 0.0)
    monkeypatch.setattr(batching, "InvarianceCheck", check_by_a_counted_clock)
    monkeypatch.setattr(batching_table, "_of_this_process", {})
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def check_by_a_counted_clock(model: Any, found: CheckResults, first_pass: float) -> InvarianceCheck:
    """Return a check whose passes all take a short time."""
    return InvarianceCheck(model, found, first_pass=0.001, clock=CountedClock())


@pytest.fixture
def model_of(tiny_model: TinyModel, tmp_path: Path) -> Callable[[str], Path]:
    """Function to a model folder that no other test has loaded, with or without time for a check."""

    def folder_of(kind: str) -> Path:
        if kind not in DECODE_WRONG:
            return shutil.copytree(tiny_model(kind), tmp_path / kind)
        return make_folder(kind, tmp_path / kind, tiny_model("qwen3").parent)

    return folder_of


def unproved(folder: Path, account: MemoryAccount | None = None, kv_bits: int | None = None) -> Driver:
    """Return an engine of a model that has not been checked."""
    driver = Driver(folder, kv_bits=kv_bits)
    driver.engine.close()
    rests: list[BackgroundCheck] = []
    model = load_model(folder, Settings(kv_bits=kv_bits), on_unchecked=rests.append)
    assert not can_batch(new_cache(model))
    share = Share(account) if account else None
    driver.engine = TextEngine(
        model, driver.output_processor, background_check=rests[0], share=share, costs=FixedCosts()
    )
    return driver


def rows_of(driver: Driver) -> int:
    """Answer all prompts at once, check the answers, and return the most rows of a batch."""
    driver.restart()
    for prompt in PROMPTS:
        driver.submit(prompt, TOKENS_EACH)
    rows = 0
    while driver.engine.has_work:
        driver.step()
        rows = max([rows, *(shape[0] for shape in driver.engine.statistics().batches)])
    return rows


def answers(folder: Path, kv_bits: int | None = None) -> list[list[int]]:
    return [expected(folder, prompt, TOKENS_EACH, kv_bits) for prompt in PROMPTS]


PASSES = 14
"""Number of passes of a whole check."""


def pause(driver: Driver, passes: int = 1_000_000) -> int:
    """Let the engine idle for so many passes; return the number actually run."""
    for done in range(passes):
        if driver.engine.idle_delay is None:
            return done
        driver.engine.work_idly()
    return passes


@pytest.mark.parametrize("kind", ["qwen3", *deep_only("falcon_h1")])
def test_rows_are_alone_until_a_pause_has_proved_that_they_need_not_be(model_of: ModelOf, kind: str) -> None:
    folder = model_of(kind)
    driver = unproved(folder)
    assert rows_of(driver) == 1
    assert driver.tokens == answers(folder)
    assert pause(driver, 3) == 3
    assert rows_of(driver) == 1
    assert driver.tokens == answers(folder)
    with capture_logs() as logs:
        assert pause(driver) >= 6
    lines = [(line["event"], line["prefill"], line["decode"]) for line in logs]
    assert lines == [
        ("batching proved", "alone", "together"),
        ("batching proved", "together", "together"),
    ]
    assert rows_of(driver) == 3
    assert driver.tokens == answers(folder)
    driver.engine.close()


@pytest.mark.parametrize(("kind", "rows"), [("afm7", 1), ("mamba", 3)])
def test_what_is_proved_wrong_stays_alone(
    model_of: ModelOf, monkeypatch: pytest.MonkeyPatch, kind: str, rows: int
) -> None:
    monkeypatch.setattr("greenroom.engine.loading.load_model.patch_for_batching", lambda model: False)
    folder = model_of(kind)
    driver = unproved(folder)
    with capture_logs() as logs:
        pause(driver)
    last = logs[-1]
    assert (last["event"], last["prefill"]) == ("rows are computed alone", "alone")
    assert last["decode"] == ("alone" if rows == 1 else "together")
    assert rows_of(driver) == rows
    assert driver.tokens == answers(folder)
    driver.engine.close()


def test_no_pass_is_computed_while_there_is_work(model_of: ModelOf) -> None:
    folder = model_of("qwen3")
    driver = unproved(folder)
    driver.submit(PROMPTS[0], TOKENS_EACH)
    with capture_logs() as logs:
        while driver.engine.has_work:
            driver.engine.work_idly()
            driver.step()
    assert logs == []
    assert pause(driver) == PASSES
    driver.engine.close()


def test_quantized_caches_are_alone_and_together_as_others(model_of: ModelOf) -> None:
    folder = model_of("qwen3")
    driver = unproved(folder, kv_bits=8)
    assert rows_of(driver) == 1
    assert driver.tokens == answers(folder, 8)
    pause(driver)
    assert rows_of(driver) == 3
    assert driver.tokens == answers(folder, 8)
    driver.engine.close()


def test_a_pass_that_would_hold_a_request_up_for_long_is_never_computed(
    model_of: ModelOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batching, "MAX_PASS_SECONDS", 0.0)
    driver = unproved(model_of("qwen3"))
    with capture_logs() as logs:
        assert pause(driver) == 1
    (line,) = logs
    assert "the next pass of its check would take" in line["reason"]
    assert rows_of(driver) == 1
    driver.engine.close()


def test_passes_take_memory_that_nobody_needs(model_of: ModelOf) -> None:
    folder = model_of("qwen3")
    size_model = CacheSizeModel.of(load_model(folder, Settings()))
    lent = size_model.nbytes(ROWS, TOKENS)
    short = MemoryAccount(kv_limit=2 * lent - 1)
    driver = unproved(folder, short)
    assert pause(driver, 20) == 20
    delay = driver.engine.idle_delay
    assert delay is not None
    assert delay >= 10
    assert short.statistics().running == 0
    assert rows_of(driver) == 1
    driver.engine.close()
    enough = MemoryAccount(kv_limit=2 * lent)
    driver = unproved(folder, enough)
    assert enough.statistics().running == lent
    pause(driver, 4)
    assert enough.statistics().running == lent
    driver.engine.release_memory()
    assert enough.statistics().running == 0
    assert pause(driver) == PASSES
    assert enough.statistics().running == 0
    assert rows_of(driver) == 3
    driver.engine.close()


def test_a_prompt_that_needs_the_memory_of_the_passes_gets_it(model_of: ModelOf) -> None:
    folder = model_of("qwen3")
    size_model = CacheSizeModel.of(load_model(folder, Settings()))
    lent = size_model.nbytes(ROWS, TOKENS)
    account = MemoryAccount(kv_limit=2 * lent)
    driver = unproved(folder, account)
    pause(driver, 4)
    assert account.statistics().running == lent
    account.kv_limit = lent
    prompt = tuple(100 + place * 7 % 1900 for place in range(300))
    driver.submit(prompt, 4)
    driver.run()
    assert driver.tokens[-1] == expected(folder, prompt, 4)
    assert account.statistics().running == 0
    account.kv_limit = None
    assert pause(driver) == PASSES
    driver.engine.close()


def test_a_closed_engine_has_nothing_left_to_prove(model_of: ModelOf) -> None:
    account = MemoryAccount(kv_limit=1 << 30)
    driver = unproved(model_of("qwen3"), account)
    pause(driver, 4)
    driver.engine.close()
    assert driver.engine.idle_delay is None
    assert account.statistics().running == 0
