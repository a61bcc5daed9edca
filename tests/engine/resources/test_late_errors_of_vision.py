"""Late device errors while images are computed: no answer ends wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from greenroom.engine.text.prefix_cache.prefix_cache import PrefixCache
from greenroom.schemas.events.events import Failed, Finished
from greenroom.tests.support.engines.late_errors import LateError
from greenroom.tests.support.engines.schedules import soak_only
from greenroom.tests.support.engines.vision_engines import Parts, VisionDriver, expected, picture
from greenroom.tests.support.models.tiny_vision_models import TinyVisionModel

ONE: Parts = ["def read(self, ", picture(1), " size=-1): return"]
AGAIN: Parts = ["What is ", picture(1), " if not a picture"]
TEXT: Parts = ["Just text for a change, and nothing else to be seen"]
ASKED: tuple[tuple[int, Parts, int], ...] = ((0, ONE, 16), (4, TEXT, 16), (12, AGAIN, 16))
"""Steps before which prompts are submitted, with the number of tokens wanted."""

_PIECES = 12
"""Minimum number of launches to compute an image and the start of its prompt."""


def open_driver(folder: Path) -> VisionDriver:
    return VisionDriver(folder, options={"prefix_cache": PrefixCache(1 << 28)})


def run(driver: VisionDriver) -> list[list[int] | None]:
    """Answer the prompts; return the tokens of each ended answer, None for others."""
    step, submitted = 0, 0
    try:
        while submitted < len(ASKED) or driver.engine.has_work:
            while submitted < len(ASKED) and ASKED[submitted][0] <= step:
                driver.submit(ASKED[submitted][1], ASKED[submitted][2])
                submitted += 1
            driver.step()
            step += 1
    except RuntimeError:
        pass
    driver.engine.close()
    lasts = [events[-1] if events else None for events in driver.events.values()]
    assert not any(isinstance(last, Failed) for last in lasts)
    return [
        driver.tokens[at] if at < len(lasts) and isinstance(lasts[at], Finished) else None
        for at in range(len(ASKED))
    ]


@pytest.mark.parametrize("kind", ["qwen2_5_vl", *soak_only("gemma3", "qwen3_vl", "smolvlm")])
@pytest.mark.parametrize("late", [1, 4, *soak_only(0, 2, 3, 6, 10, 20)])
def test_no_answer_about_an_image_ends_wrong(
    tiny_vision_model: TinyVisionModel, monkeypatch: pytest.MonkeyPatch, kind: str, late: int
) -> None:
    folder = tiny_vision_model(kind)
    right = [expected(folder, parts, count) for _, parts, count in ASKED]
    for spoiled in range(1, _PIECES):
        driver = open_driver(folder)
        with monkeypatch.context() as patch:
            error = LateError(patch, late, spoiled)
            answers = run(driver)
            assert error.thrown
        assert all(answer in (None, tokens) for answer, tokens in zip(answers, right, strict=True)), spoiled
    assert run(open_driver(folder)) == right
