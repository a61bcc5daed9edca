"""Device reports name the device, and have the figures and failures of each part."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from greenroom.tests.on_device.faithfulness import LARGEST_SHORTFALL, compare
from greenroom.tests.on_device.plans import SHORT, Plan
from greenroom.tests.on_device.report import write_report
from greenroom.tests.support.engines import schedules

VERY_SHORT = Plan(
    row_options=("--short",),
    checks=True,
    kinds=("qwen3",),
    attack_seconds=1,
    attack_options=SHORT.attack_options,
)
ROWS = (
    *("first token, prompt of 512", "prefill, prompt of 1k", "prefill, prompt of 16k"),
    *("decode, 1 stream", "decode, 4 streams", "decode, 8 streams", "decode, 32 streams"),
    *("first token, prefix of 512 again", "decode of a repeated text, without drafts"),
    "decode of a repeated text, with drafts (lookup)",
)


@pytest.mark.soak  # it attacks and measures a server for half a minute
def test_a_report_has_the_device_the_versions_and_the_figures_of_each_part(tmp_path: Path) -> None:
    said: list[str] = []
    failed = write_report(VERY_SHORT, tmp_path / "report.md", said.append)
    report = (tmp_path / "report.md").read_text()
    assert not set(failed) - {"Attack"}, report  # the attack may find a busy machine too slow
    assert said == ["Figures ...", "Faithfulness ...", "Attack ..."]
    assert f"| mlx | {version('mlx')} |" in report
    assert "| device | cpu |" in report
    assert "| GPU | none: all of this is the CPU's, with" in report
    assert re.search(r"^\| commit \| \S+ \|$", report, re.M)
    assert "| qwen3 | 20 | 0 | 0 |  |" in report
    assert " attacks in 1 s, " in report
    figures = dict(re.findall(r"^\| ([^|]+) \| ([^|]+) \| [^|]+ \|$", report, re.M))
    assert [name for name in figures if name in ROWS] == list(ROWS)
    # The demo model has a context of 2,048 tokens.
    assert [name for name in ROWS if figures[name] == "none"] == ["prefill, prompt of 16k"]
    assert "at most 60 s a row" in report


@pytest.mark.deep
def test_a_part_that_fails_is_told_with_its_reason(tmp_path: Path) -> None:
    plan = Plan(str(tmp_path / "unheard-of"), (), True, ("unheard-of",), 1, ("--unheard-of",))
    assert write_report(plan, tmp_path / "report.md", lambda text: None) == list(plan.parts())
    report = (tmp_path / "report.md").read_text()
    assert report.count("**failed**") == 3
    assert "| unheard-of | 0 | 0 | 0 | KeyError" in report
    assert "No such option '--unheard-of'" in report
    assert report.endswith("Failed: Figures, Faithfulness, Attack.\n")


@pytest.mark.deep
def test_an_answer_that_is_not_the_likeliest_is_a_failure(
    tiny_model: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    run_schedule = schedules.run_schedule

    def run_and_spoil(driver: Any, schedule: Any) -> None:
        run_schedule(driver, schedule)
        driver.tokens[0][3] = 7

    monkeypatch.setattr(schedules, "run_schedule", run_and_spoil)
    found = compare("qwen3", tiny_model("qwen3"))
    assert (found.equal, found.others) == (16, 4)
    assert found.failures(LARGEST_SHORTFALL["gpu"])
