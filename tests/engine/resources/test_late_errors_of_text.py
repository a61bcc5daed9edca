"""Late device errors: no answer ends wrong, whether the error is its own or another's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import attrs
import pytest

from greenroom.engine.text.prefix_cache.disk_tier import DiskTier
from greenroom.engine.text.prefix_cache.prefix_cache import PrefixCache
from greenroom.schemas.events.events import Failed, Finished
from greenroom.tests.support.engines.late_errors import LateError
from greenroom.tests.support.engines.schedules import deep_only, soak_only
from greenroom.tests.support.engines.text_engines import Driver, expected
from greenroom.tests.support.models.tiny_models import TinyModel
from greenroom.tests.support.texts.prompts import words

FINGERPRINT = "0123456789abcdef" * 2
GENEROUS = 1 << 30
Cached = Literal["none", "memory", "disk"]
LATE = [0, 9, *deep_only(1, 2, 3, 5), *soak_only(4, 6, 7, 8, *range(10, 21))]

FIRST = words(300, 1)
SECOND = words(60, 2)
CONTINUED = [*FIRST, *words(40, 3)]


@attrs.frozen
class Asked:
    """A prompt, the step before which it is submitted, and the number of tokens wanted."""

    step: int
    prompt: list[int]
    count: int


def open_driver(folder: Path, cached: Cached, root: Path) -> Driver:
    """Return an engine, which may find the files of a previous one."""
    if cached == "none":
        return Driver(folder)
    disk = DiskTier(root, FINGERPRINT, GENEROUS) if cached == "disk" else None
    return Driver(folder, prefix_cache=PrefixCache(GENEROUS, disk))


def run(driver: Driver, asked: list[Asked]) -> list[list[int] | None]:
    """Answer the prompts; return the tokens of each ended answer, None for others."""
    waiting, step, ids = [*asked], 0, dict[int, str]()
    try:
        while waiting or driver.engine.has_work:
            for each in [each for each in waiting if each.step <= step]:
                ids[asked.index(each)] = driver.submit(each.prompt, each.count)
                waiting.remove(each)
            driver.step()
            step += 1
    except RuntimeError:
        pass
    lasts = {index: driver.events[ident][-1] for index, ident in ids.items() if driver.events[ident]}
    assert not any(isinstance(last, Failed) for last in lasts.values())
    return [
        driver.tokens[int(ids[index])] if isinstance(lasts.get(index), Finished) else None
        for index in range(len(asked))
    ]


def check(folder: Path, driver: Driver, asked: list[Asked], reload: Callable[[], Driver]) -> int:
    """Run a failing engine, then the next one; return the number of answers that the first one ended."""
    tokens = [expected(folder, tuple(each.prompt), each.count) for each in asked]
    answers = run(driver, asked)
    ended = [(answer, right) for answer, right in zip(answers, tokens, strict=True) if answer is not None]
    assert all(answer == right for answer, right in ended)
    driver.engine.close()
    driver = reload()
    assert run(driver, asked) == tokens
    driver.engine.close()
    return len(ended)


@pytest.mark.parametrize("cached", ["none", "memory", "disk"])
@pytest.mark.parametrize("late", LATE)
def test_no_answer_ends_wrong_beside_others(
    tiny_model: TinyModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: int, cached: Cached
) -> None:
    folder = tiny_model("qwen3")
    asked = [Asked(0, FIRST, 24), Asked(2, SECOND, 24), Asked(6, CONTINUED, 24)]
    for each in asked:
        expected(folder, tuple(each.prompt), each.count)
    driver = open_driver(folder, cached, tmp_path)
    error = LateError(monkeypatch, late)
    check(folder, driver, asked, lambda: open_driver(folder, cached, tmp_path))
    assert error.thrown


@pytest.mark.parametrize("count", [1, 2, *soak_only(3, 4)])
@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("late", [20, *soak_only(*range(20))])
def test_an_answer_that_is_short_ends_no_sooner_than_its_launches_are_known_to_be_right(
    tiny_model: TinyModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    late: int,
    beside: bool,
    count: int,
) -> None:
    folder = tiny_model("qwen3")
    asked = [Asked(0, FIRST, count), *([Asked(0, SECOND, 40)] if beside else [])]
    for each in asked:
        expected(folder, tuple(each.prompt), each.count)
    driver = open_driver(folder, "disk", tmp_path)
    error = LateError(monkeypatch, late)
    check(folder, driver, asked, lambda: open_driver(folder, "disk", tmp_path))
    assert error.thrown
