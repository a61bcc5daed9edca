"""Background work of an idle model's thread, which must never delay requests."""

from __future__ import annotations

import itertools
import math
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue

import attrs
import pytest

from greenroom.actors.core.worker_thread import DeviceReport, Heartbeat
from greenroom.actors.engines.engines import Engines, ModelFiles
from greenroom.actors.model.model_loop import (
    MIN_INTERVAL,
    EventCoalescer,
    LoopEnded,
    LoopReport,
    ModelLoop,
    Stepped,
    Submit,
)
from greenroom.engine.loading import batching, batching_table
from greenroom.engine.loading.batching import BackgroundCheck
from greenroom.engine.text.text_engine import TextEngine
from greenroom.schemas.events.events import (
    Finished,
    InferenceEvent,
    PromptProgress,
    ReasoningDelta,
    TextDelta,
    Usage,
)
from greenroom.schemas.messages.prepared_input import PreparedPrompt
from greenroom.schemas.messages.requests import InferenceRequest
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.actors.actor_systems import chat
from greenroom.tests.support.models.tiny_models import TinyModel

Order = SimpleQueue[str]


class Pauses:
    """A model loop with an unfinished batch-invariance check; each pass of the check waits for the test."""

    def __init__(self, folder: Path) -> None:
        self.order: Order = SimpleQueue()
        self.through = threading.Semaphore(0)
        self.reports: SimpleQueue[LoopReport] = SimpleQueue()
        engines = Engines(Settings(models=(str(folder),)))
        opened = engines.open_model(ModelFiles("model", folder))
        self.loop = ModelLoop(ModelKey("model"), engines, opened, self.reports.put)
        self.adapter = opened.adapter
        self.ends: SimpleQueue[LoopEnded] = SimpleQueue()
        self.thread = threading.Thread(target=lambda: self.ends.put(self.loop.run(Heartbeat())), daemon=True)

    def submit(self, request_id: str) -> None:
        request = chat("model", request_id)
        self.loop.put(Submit(request, self.adapter.prepare_input(request)))

    def finished(self) -> str:
        """Wait for the next request to finish; return its id."""
        while True:
            report = self.reports.get(timeout=60)
            for request_id, event in report.events if isinstance(report, Stepped) else ():
                if isinstance(event, Finished):
                    return request_id


@pytest.fixture
def pauses(tiny_model: TinyModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pauses:
    monkeypatch.setattr(batching, "table", dict)
    monkeypatch.setattr(batching, "MIN_SECONDS", 0.0)
    monkeypatch.setattr(batching, "SHARE_OF_LOAD", 0.0)
    # On a busy machine the check would pause for minutes, split its passes, or give up.
    monkeypatch.setattr(batching, "_REST", 0)
    monkeypatch.setattr(batching, "PIECE", math.inf)
    monkeypatch.setattr(batching, "MAX_PASS_SECONDS", math.inf)
    monkeypatch.setattr(batching_table, "_of_this_process", {})
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made = Pauses(shutil.copytree(tiny_model("qwen3"), tmp_path / "model"))
    _record(monkeypatch, made)
    return made


def _record(monkeypatch: pytest.MonkeyPatch, pauses: Pauses) -> None:
    advance: Callable[[BackgroundCheck], None] = BackgroundCheck.advance
    submit = TextEngine.submit

    def advance_when_let(proof: BackgroundCheck) -> None:
        pauses.order.put("pass")
        pauses.through.acquire()
        advance(proof)

    def submit_noted(engine: TextEngine, request: InferenceRequest, prepared: PreparedPrompt) -> None:
        pauses.order.put(request.id)
        submit(engine, request, prepared)

    monkeypatch.setattr(BackgroundCheck, "advance", advance_when_let)
    monkeypatch.setattr(TextEngine, "submit", submit_noted)


def test_a_request_waits_for_one_pass_at_most_and_a_pause_for_no_request(pauses: Pauses) -> None:
    pauses.thread.start()
    assert pauses.order.get(timeout=60) == "pass"
    pauses.submit("first")
    pauses.through.release()
    assert pauses.order.get(timeout=60) == "first"
    assert pauses.finished() == "first"
    for _ in range(13):
        assert pauses.order.get(timeout=60) == "pass"
        pauses.through.release()
    pauses.submit("second")
    assert pauses.order.get(timeout=60) == "second"
    assert pauses.finished() == "second"
    assert [found.complete for found in batching_table._of_this_process.values()] == [True]
    pauses.loop.abandon()
    end = pauses.ends.get(timeout=60)
    assert attrs.evolve(end, freed=None) == LoopEnded(device=DeviceReport(computed=True))
    assert pauses.order.empty()
    pauses.thread.join()


def test_no_pass_follows_once_a_model_is_to_be_unloaded(pauses: Pauses) -> None:
    pauses.thread.start()
    assert pauses.order.get(timeout=60) == "pass"
    pauses.loop.abandon()
    pauses.through.release(10)
    assert attrs.evolve(pauses.ends.get(timeout=60), freed=None) == LoopEnded()
    assert pauses.order.empty()
    pauses.thread.join()


class ClockedCoalescer:
    """A coalescer whose clock the test sets, with its reports and their times."""

    def __init__(self) -> None:
        self.now = 100.0
        self.reported: list[tuple[float, list[str]]] = []
        self.coalescer = EventCoalescer(self._record, lambda: self.now)

    def step(self, seconds: float, *events: InferenceEvent) -> None:
        self.now += seconds
        self.coalescer.add([("a", event) for event in events])

    def _record(self, events: list[tuple[str, InferenceEvent]]) -> None:
        self.reported.append((self.now, [_text_or_name(event) for _, event in events]))


def _text_or_name(event: InferenceEvent) -> str:
    return event.text if isinstance(event, TextDelta | ReasoningDelta) else type(event).__name__


def test_tokens_of_fast_steps_go_together_at_a_steady_pace() -> None:
    clocked = ClockedCoalescer()
    for step in range(9):
        clocked.step(MIN_INTERVAL / 3 + 1e-9, TextDelta(str(step)))
    assert [events for _, events in clocked.reported] == [["0"], ["1", "2", "3"], ["4", "5", "6"]]
    times = [when for when, _ in clocked.reported]
    assert all(later - earlier < MIN_INTERVAL * 1.01 for earlier, later in itertools.pairwise(times))


def test_tokens_of_slow_steps_go_at_once() -> None:
    clocked = ClockedCoalescer()
    for step in range(4):
        clocked.step(1.01 * MIN_INTERVAL, ReasoningDelta(str(step)))
    assert [events for _, events in clocked.reported] == [["0"], ["1"], ["2"], ["3"]]


def test_the_first_token_and_the_end_do_not_wait() -> None:
    clocked = ClockedCoalescer()
    clocked.step(1.0, PromptProgress(3, 3))
    clocked.step(MIN_INTERVAL / 9, TextDelta("first"))
    clocked.step(MIN_INTERVAL / 9, TextDelta("pending"))
    clocked.step(MIN_INTERVAL / 9, TextDelta("last"), Finished("stop", Usage(3, 3)))
    assert [events for _, events in clocked.reported] == [
        ["PromptProgress"],
        ["first"],
        ["pending", "last", "Finished"],
    ]


def test_what_is_pending_goes_before_a_pause_and_only_once() -> None:
    clocked = ClockedCoalescer()
    clocked.step(1.0, TextDelta("first"))
    clocked.step(MIN_INTERVAL / 9, TextDelta("pending"))
    clocked.coalescer.flush()
    clocked.coalescer.flush()
    clocked.step(MIN_INTERVAL / 9)
    assert [events for _, events in clocked.reported] == [["first"], ["pending"]]
