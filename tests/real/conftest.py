"""Tests of real weights: `make real` fetches them, and runs these."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from ctypes.util import find_library
from pathlib import Path
from typing import Any, TypeVar

import openai
import pytest

from greenroom.tests.real.packages import PHONEMIZER
from greenroom.tests.real.recordings import OPENBLAS
from greenroom.tests.support.servers.server_processes import serving

HOME = Path(os.environ.get("REAL_MODELS", "no such folder"))
Record = Callable[[str, object], None]
"""Type of pytest's `record_property`: a figure of the table."""
_SLOW = sys.platform == "linux" and not find_library("openblas")
"""True where MLX multiplies so slowly that hearing takes minutes, unless `make real` has fetched OpenBLAS."""
_SPENT = "processor seconds"
"""A figure that every test has."""
T = TypeVar("T")
Call = Callable[[openai.OpenAI], T]
Ask = Callable[[Sequence[Call[Any]]], list[Any]]
_skipped: dict[str, str] = {}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.real)
            needed: tuple[str, ...] = getattr(item, "module").NEEDS  # noqa: B009 (not known to every item)
            if item.path.name.startswith("test_whisper") and _SLOW:
                needed += (OPENBLAS,)
            if missing := [name for name in needed if not (HOME / name).exists()]:
                item.add_marker(pytest.mark.skip(reason=f"no {' and no '.join(missing)} in REAL_MODELS"))
                _skipped[item.name] = ", ".join(missing)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print a table of the tests, with the figures that they recorded."""
    done = [*terminalreporter.stats.get("passed", ()), *terminalreporter.stats.get("failed", ())]
    if config.option.markexpr == "real" and done:
        terminalreporter.write_line("\n| test | result | seconds | figures |\n|---|---|---|---|")
        for report in done:
            told = [f"{name} {value}" for name, value in report.user_properties if name != _SPENT]
            figures = "; ".join(told)
            place, _, name = report.nodeid.partition("::")
            row = f"{Path(place).stem}: {name} | {report.outcome} | {report.duration:.1f} | {figures}"
            terminalreporter.write_line(f"| {row} |")


def pytest_unconfigure(config: pytest.Config) -> None:
    # The last line of the run, so that nobody takes it for a proof.
    if _skipped and config.option.markexpr == "real":
        missing = ", ".join(sorted(set(_skipped.values())))
        print(f"\nSkipped {len(_skipped)} tests, since these models or recordings are not here: {missing}")


@pytest.fixture(scope="session")
def converted() -> None:
    """SmolLM2 with 4 and with 8 bits, as mlx-lm converts it, is there where SmolLM2 is."""
    from mlx_lm import convert

    for bits in (4, 8):
        folder = HOME / f"smollm2-{bits}bit"
        if (HOME / "smollm2").exists() and not (folder / "config.json").exists():
            convert(str(HOME / "smollm2"), str(folder), quantize=True, q_bits=bits, q_group_size=64)


@pytest.fixture(scope="session")
def client(converted: None) -> Iterator[openai.OpenAI]:
    """OpenAI's client of a server of all models that are there, in a process of its own."""
    folders = [str(folder.parent) for folder in sorted(HOME.glob("[!.]*/config.json"))]
    fast: dict[str, Any] = {"LD_LIBRARY_PATH": str(HOME / OPENBLAS), "OPENBLAS_NUM_THREADS": "1"}
    variables = fast if (HOME / OPENBLAS).exists() else {}
    variables["PYTHONPATH"] = os.pathsep.join([*sys.path, str(HOME / PHONEMIZER)])
    with (
        serving(*folders, **variables) as server,
        openai.OpenAI(base_url=f"{server.address}/v1", api_key="any", max_retries=0, timeout=900) as client,
    ):
        yield client


@pytest.fixture
def together(client: openai.OpenAI) -> Ask:
    """`together(calls)` makes calls with the client at the same time."""

    def ask(calls: Sequence[Call[Any]]) -> list[Any]:
        with ThreadPoolExecutor(len(calls)) as threads:
            return list(threads.map(lambda call: call(client), calls))

    return ask
