"""Figures of engines of every kind in the pool's status, with real tiny models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import structlog
import trio

from greenroom.actors.engines.engine_protocol import Engine
from greenroom.actors.engines.engines import Engines, OpenedModel
from greenroom.actors.model.model_loop import INTERVAL, SnapshotPublisher
from greenroom.actors.requests.generation import Generation
from greenroom.actors.system import open_system
from greenroom.schemas.events.events import Finished, TextDelta, Usage
from greenroom.schemas.events.statistics import EngineSnapshot, MemoryStatistics
from greenroom.schemas.messages.messages import ImagePart, Message, TextPart
from greenroom.schemas.messages.requests import (
    ChatInput,
    EmbeddingInput,
    InferenceRequest,
    RequestInput,
    ScoreInput,
    SpeechInput,
    TranscriptionInput,
)
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.models.lifecycle import DOCUMENTED_NAMES, ModelState
from greenroom.schemas.settings.settings import Settings
from greenroom.testing import Faults, FaultyEngines
from greenroom.tests.support.actors.actor_systems import (
    answer,
    chat,
    eventually,
    generate,
    status,
    until,
)
from greenroom.tests.support.hostile import pictures
from greenroom.tests.support.media.recordings import noise, write_recording
from greenroom.tests.support.spoiled.spoiled_kinds import MAKERS


class WatchedEngines(Engines):
    """Real engines whose snapshots are taken before each step."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.seen: list[EngineSnapshot] = []

    def load_engine(
        self, opened: OpenedModel, progress: Callable[[float], None], is_abandoned: Callable[[], bool]
    ) -> Engine[Any]:
        engine = super().load_engine(opened, progress, is_abandoned)
        step = engine.step

        def watched() -> Any:
            self.seen.append(engine.snapshot())
            return step()

        setattr(engine, "step", watched)  # noqa: B010
        return engine


def input_of(kind: str, folder: Path) -> RequestInput:
    match kind:
        case "sees":
            seen = (ImagePart(pictures.photo(32, 32, "PNG")), TextPart("What is this?"))
            return ChatInput((Message("user", seen),))
        case "embeds":
            return EmbeddingInput(("one two", "three"))
        case "ranks":
            return ScoreInput((("who walks", "the garden"), ("who walks", "the man")))
        case "speaks":
            return SpeechInput("Hello.")
        case "hears":
            write_recording(folder / "noise.wav", noise(2.0))
            return TranscriptionInput(str(folder / "noise.wav"))
    return chat("m").input


@pytest.mark.parametrize(
    "kind",
    [
        "writes",
        *(pytest.param(kind, marks=[pytest.mark.deep] * (kind in ("hears", "sees"))) for kind in MAKERS),
    ],
)
async def test_an_engine_of_each_kind_tells_its_figures(
    kind: str, tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    folder = tiny_model("qwen3") if kind == "writes" else tmp_path / kind
    if kind != "writes":
        folder.mkdir()
        MAKERS[kind](folder)
    settings = Settings(models=(str(folder),), shutdown_timeout=60.0)
    engines, ends = WatchedEngines(settings), list[Finished]()
    overrides = {"temperature": 0.0, "max_tokens": 4} if kind in ("writes", "sees") else {}
    async with open_system(settings, engines=engines) as system:
        for number in range(2):
            asked = InferenceRequest(f"r{number}", ModelKey("default"), input_of(kind, tmp_path), overrides)
            with trio.fail_after(300), Generation(system.pool, asked) as generation:
                end = [event async for event in generation][-1]
            assert isinstance(end, Finished), end
            ends.append(end)
        total = ends[0].usage.with_request(ends[1].usage)

        async def idle() -> bool:
            snapshot = (await status(system.pool, folder.name)).snapshot
            return snapshot is not None and snapshot.usage == total

        await eventually(idle)
        described = await status(system.pool, folder.name)
    snapshot = described.snapshot
    assert snapshot is not None
    assert (snapshot.running, snapshot.waiting) == (0, 0)
    assert snapshot.memory.weights > 0
    assert (described.state, described.documented_state) == (ModelState.READY, "Ready")
    assert described.nbytes >= snapshot.memory.weights
    assert (described.leases, described.queue, described.restarts) == (0, 0, 0)
    assert described.since > 0
    assert {seen.running + seen.waiting for seen in engines.seen} >= {1}
    assert max(seen.running for seen in engines.seen) <= 1
    if kind in ("writes", "sees"):
        assert snapshot.prefix_cache is not None
        assert max(seen.usage.generated for seen in engines.seen) >= 3
    totals = described.totals
    assert totals is not None
    assert (totals.usage, totals.finished) == (total, {ends[0].reason: 2})
    assert (totals.texts, totals.documents) == (4 * (kind == "embeds"), 4 * (kind == "ranks"))
    assert (snapshot.usage.images > 0) is (kind == "sees")
    assert (snapshot.usage.heard > 0) is (kind == "hears")
    assert (snapshot.usage.spoken > 0) is (kind == "speaks")


@pytest.mark.deep
async def test_a_long_answer_is_seen_while_it_is_written(settings: Settings) -> None:
    async with open_system(settings) as system:
        with generate(system.pool, "qwen3", max_tokens=20_000, n=2, seed=1) as running:
            await until(running, TextDelta)

            async def seen() -> bool:
                snapshot = (await status(system.pool, "qwen3")).snapshot
                return snapshot is not None and snapshot.running == 2 and snapshot.usage.generated > 2

            await eventually(seen)
            described = await status(system.pool, "qwen3")
            assert (described.leases, described.queue) == (1, 0)
            assert described.snapshot is not None
            assert described.snapshot.memory.running > 0


async def test_an_unloaded_model_has_no_figures_and_a_recovered_one_keeps_its_error(
    settings: Settings,
) -> None:
    faults = Faults(crash={"bad"})
    async with open_system(settings, engines=FaultyEngines(settings, faults)) as system:
        await answer(system.pool, "qwen3", "bad", max_tokens=200)
        failed = await status(system.pool, "qwen3")
        assert (failed.state, failed.documented_state) == (ModelState.ERROR, "Error")
        assert (failed.snapshot, failed.nbytes) == (None, 0)
        assert failed.last_error is not None
        assert failed.last_error.code == "model_crashed"
        assert isinstance((await answer(system.pool, "qwen3", "next"))[1], Finished)
        recovered = await status(system.pool, "qwen3")
    assert (recovered.state, recovered.restarts, recovered.problem) == (ModelState.READY, 1, None)
    assert recovered.last_error == failed.last_error
    assert recovered.since > failed.since > failed.last_error.time - 1


async def test_snapshots_are_no_events_of_the_pools_log(settings: Settings) -> None:
    with structlog.testing.capture_logs() as logs:
        async with open_system(settings) as system:
            await answer(system.pool, "qwen3")

            async def told() -> bool:
                return (await status(system.pool, "qwen3")).snapshot is not None

            await eventually(told)
    changes = [line["change"] for line in logs if line["event"] == "pool changed"]
    assert changes
    assert not [change for change in changes if isinstance(getattr(change, "report", None), EngineSnapshot)]


def test_a_working_engine_is_read_once_a_second_and_an_idle_one_once() -> None:
    told, now = list[EngineSnapshot](), [100.0]
    publisher = SnapshotPublisher(told.append, lambda: now[0])
    running = EngineSnapshot(1, 0, Usage(prompt=5, generated=2), MemoryStatistics(1, 0, 0, 0, None))

    def work(*ends: Finished) -> None:
        publisher.record([("r", end) for end in ends])
        publisher.publish(lambda: running, idle=False)

    work()
    for _ in range(9):
        now[0] += INTERVAL / 10
        work()
    assert len(told) == 1
    now[0] += INTERVAL / 5
    # Of two choices the prompt counts once.
    first, second = Usage(prompt=7, generated=1), Usage(prompt=7, generated=3)
    work(Finished("stop", first), Finished("stop", second, index=1))
    assert len(told) == 2
    assert told[-1].usage == Usage(prompt=12, generated=6)
    publisher.record([])
    for _ in range(3):
        publisher.publish(lambda: running, idle=True)
    assert len(told) == 3


def test_every_state_has_a_name_in_the_document() -> None:
    assert set(DOCUMENTED_NAMES) == set(ModelState)
    assert set(DOCUMENTED_NAMES.values()) == {"Idle", "Ready", "Switching", "Loading", "Error"}
