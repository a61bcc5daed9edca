"""Browser tests: `make browser` runs them, where Chromium and its driver are."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from greenroom.tests.browser.page import CHROMIUM, DRIVER, Page, chromium
from greenroom.tests.support.servers.server_processes import ServerProcess, serving

MISSING = [name for name, found in (("chromium", CHROMIUM), ("chromium-driver", DRIVER)) if found is None]
_skipped: list[str] = []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    own = [item for item in items if item.path.parent == Path(__file__).parent]
    for item in own:
        item.add_marker(pytest.mark.browser)
        if MISSING:
            item.add_marker(pytest.mark.skip(reason=f"no {' and no '.join(MISSING)} here"))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped:
        _skipped.append(report.location[2])


def pytest_unconfigure(config: pytest.Config) -> None:
    # The last line of the run, so that nobody takes it for a proof.
    if MISSING and _skipped and not hasattr(config, "workerinput") and config.option.markexpr == "browser":
        print(f"\nSkipped, since there is no {' and no '.join(MISSING)}: {', '.join(_skipped)}")


@pytest.fixture(scope="session")
def _browser() -> Iterator[Page]:
    # Selenium asks proxies of the environment, even for the driver on this machine.
    kept = {name: os.environ.pop(name) for name in list(os.environ) if name.lower().endswith("_proxy")}
    try:
        with chromium() as page:
            yield page
    finally:
        os.environ.update(kept)


@pytest.fixture
def page(_browser: Page) -> Iterator[Page]:
    """A tab that has done nothing it must not do by the end of the test."""
    _browser.show("light")
    yield _browser
    if _browser.origin:
        assert _browser.offences() == []


@pytest.fixture(scope="module")
def server(
    tiny_model: Callable[..., Path],
    tiny_vision_model: Callable[..., Path],
    tiny_whisper: Path,
    tiny_pocket: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ServerProcess]:
    """A server of the demo and of a tiny model of each kind that a chat uses."""
    text, sees = tiny_model("qwen3"), tiny_vision_model("qwen2_vl")
    database = tmp_path_factory.mktemp("store") / "greenroom.db"
    models = ("greenroom-demo", *map(str, (text, tiny_model("llama"), sees, tiny_whisper, tiny_pocket)))
    with serving(*models, "--db", str(database), "--inspect", "10") as running:
        yield running
