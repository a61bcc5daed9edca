"""Processor seconds of cases, told at the end of a run: a case that takes over two says why in seconds.json.

They are the seconds of the call alone, with its threads and the processes that it waited for. Nothing fails
by them, since another machine has others; `make seconds` writes the table anew.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path

import pytest

TABLE = Path(__file__).resolve().parents[2] / "seconds.json"
DEAR = 2.0
"""Processor seconds above which a case says why."""

_SPENT = "processor seconds"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-seconds", action="store_true", help=f"write {TABLE.name} anew")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    before = os.times()
    try:
        yield
    finally:
        spent = sum(after - begun for after, begun in zip(os.times()[:4], before[:4], strict=True))
        item.user_properties.append((_SPENT, round(spent, 2)))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    reports = [report for report in terminalreporter.getreports("passed") if report.when == "call"]
    spent = {report.nodeid: float(dict(report.user_properties).get(_SPENT, 0)) for report in reports}
    table = json.loads(TABLE.read_text(encoding="utf-8"))
    why: dict[str, str] = table["why"]
    dear = {case: seconds for case, seconds in spent.items() if seconds > DEAR}
    if config.getoption("--write-seconds"):
        files: defaultdict[str, float] = defaultdict(float)
        for case, seconds in spent.items():
            files[case.partition("::")[0]] += seconds
        found = sorted({_function(case) for case in dear})
        table = {
            "seconds": {
                file: round(seconds, 1) for file, seconds in sorted(files.items()) if seconds >= DEAR
            },
            "why": {function: why.get(function, "") for function in found},
        }
        TABLE.write_text(json.dumps(table, indent=4) + "\n", encoding="utf-8")
    elif "not deep" in config.option.markexpr:
        untold = {case: seconds for case, seconds in dear.items() if _function(case) not in why}
        if untold:
            terminalreporter.section(f"over {DEAR:.0f} processor seconds, without a reason in {TABLE.name}")
        for case, seconds in sorted(untold.items(), key=lambda each: -each[1]):
            terminalreporter.line(f"{seconds:6.1f} s  {case}")


def _function(case: str) -> str:
    return case.rpartition("::")[2].partition("[")[0]
