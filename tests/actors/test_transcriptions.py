"""Transcription requests on the path that all model types share."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import attrs
import numpy as np
import pytest
import trio

from greenroom.actors.pool import pool_state
from greenroom.actors.requests.generation import Generation
from greenroom.actors.system import System, open_system
from greenroom.engine.media.decoders import DECODERS
from greenroom.schemas.events.events import Admitted, Failed, Finished, InferenceEvent
from greenroom.schemas.events.result_events import Segment
from greenroom.schemas.messages.requests import InferenceRequest, TranscriptionInput
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.settings.settings import Settings
from greenroom.testing import Faults, FaultyEngines
from greenroom.tests.support.actors.actor_systems import (
    answer,
    until,
)
from greenroom.tests.support.media.recordings import noise, write_recording
from greenroom.tests.support.models.tiny_whisper import TEXT


@pytest.fixture
def short(tmp_path: Path) -> Path:
    return write_recording(tmp_path / "short.wav", noise(2))


@pytest.fixture
def long(tmp_path: Path) -> Path:
    return write_recording(tmp_path / "long.wav", np.tile(noise(10), 60))


def recording(ident: str, file: Path, client: str = "") -> InferenceRequest:
    return InferenceRequest(ident, ModelKey("default"), TranscriptionInput(str(file)), client=client)


async def listen(system: System, request: InferenceRequest) -> list[InferenceEvent]:
    with trio.fail_after(300), Generation(system.pool, request) as generation:
        return [event async for event in generation]


def text(events: list[InferenceEvent]) -> str:
    assert isinstance(events[-1], Finished)
    return "".join(event.text for event in events if isinstance(event, Segment))


def decoders() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "audio-decoder"]


@pytest.mark.deep
async def test_short_ones_are_written_down_beside_a_long_one_whose_client_leaves(
    tiny_whisper: Path, short: Path, long: Path
) -> None:
    heard: dict[str, list[InferenceEvent]] = {}
    async with open_system(Settings(models=(str(tiny_whisper),), shutdown_timeout=60.0)) as system:

        async def hear(ident: str) -> None:
            heard[ident] = await listen(system, recording(ident, short, client=ident))

        with Generation(system.pool, recording("left", long)) as left:
            while not isinstance(await left.receive(), Segment):
                pass
            async with trio.open_nursery() as nursery:
                nursery.start_soon(hear, "a")
                nursery.start_soon(hear, "b")
            beside = [event for event in left.receive_ready() if isinstance(event, Segment | Finished)]
        after = await listen(system, recording("after", short))
        with trio.fail_after(300):
            while decoders():  # noqa: ASYNC110
                await trio.sleep(0.01)
    assert not any(isinstance(event, Finished) for event in beside)
    assert [text(events) for events in (*heard.values(), after)] == [TEXT] * 3


@pytest.mark.deep
async def test_another_model_has_the_room_between_two_windows_and_who_waits_may_leave(
    tiny_whisper: Path, tiny_model: Callable[..., Path], long: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_state, "MAX_TIME_SLICE", 0.0)
    folders = (str(tiny_whisper), str(tiny_model("qwen3")))
    settings = Settings(models=folders, max_loaded_models=1, shutdown_timeout=60.0)
    faults = Faults(hang={"second"})
    async with open_system(settings, engines=FaultyEngines(settings, faults)) as system:
        request = attrs.evolve(recording("long", long), key=ModelKey(tiny_whisper.name))
        async with trio.open_nursery() as nursery:
            with Generation(system.pool, request) as generation:
                await until(generation, Segment)
                assert isinstance((await answer(system.pool, "qwen3", "first"))[1], Finished)
                generation.receive_ready()
                await until(generation, Segment)
                nursery.start_soon(answer, system.pool, "qwen3", "second")
                await trio.to_thread.run_sync(faults.hangs.wait)
                assert len(DECODERS) == 1, "its file stays open"
            with trio.fail_after(300):
                while len(DECODERS):  # noqa: ASYNC110
                    await trio.sleep(0.01)
            faults.release.set()
    assert faults.loads == [tiny_whisper.name, "qwen3"] * 2


@pytest.mark.deep
async def test_a_model_is_unloaded_under_its_recording_and_loaded_again(
    tiny_whisper: Path, short: Path, long: Path
) -> None:
    settings = Settings(models=(str(tiny_whisper),), shutdown_timeout=0.1)
    async with open_system(settings) as system:
        with Generation(system.pool, recording("cut", long)) as cut:
            while not isinstance(await cut.receive(), Segment):
                pass
    async with open_system(settings) as system:
        assert text(await listen(system, recording("again", short))) == TEXT


async def test_what_is_no_recording_fails_before_it_is_admitted(tiny_whisper: Path, tmp_path: Path) -> None:
    path = tmp_path / "recording.mp3"
    path.write_text("nothing to hear " * 1000)
    async with open_system(Settings(models=(str(tiny_whisper),), shutdown_timeout=60.0)) as system:
        events = await listen(system, recording("text", path))
    assert not any(isinstance(event, Admitted) for event in events)
    assert isinstance(events[-1], Failed)
    assert (events[-1].problem.status, events[-1].problem.param) == (400, "file")


async def test_a_model_that_writes_refuses_a_recording(short: Path) -> None:
    async with open_system(Settings(shutdown_timeout=60.0)) as system:
        [*_, failed] = await listen(system, recording("speech", short))
    assert isinstance(failed, Failed)
    assert failed.problem.code == "unsupported_model_type"
