"""Background work of an idle model's thread, which must never delay requests."""

from __future__ import annotations

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
from greenroom.actors.model.model_loop import LoopEnded, LoopReport, ModelLoop, Stepped, Submit
from greenroom.engine.loading import batching, batching_table
from greenroom.engine.loading.batching import BackgroundCheck
from greenroom.engine.text.text_engine import TextEngine
from greenroom.schemas.events.events import Finished
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
