"""Speech requests on the path that all model types share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from greenroom.actors.pool import pool_state
from greenroom.actors.requests.generation import Generation
from greenroom.actors.system import System, open_system
from greenroom.schemas.events.events import Failed, Finished, InferenceEvent, PromptProgress
from greenroom.schemas.events.result_events import AudioChunk
from greenroom.schemas.messages.requests import ChatInput, InferenceRequest, SpeechInput
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.settings.settings import Settings
from greenroom.testing import Faults, FaultyEngines
from greenroom.tests.support.actors.actor_systems import (
    answer,
)

LONG = "One two three. " * 200
PIECES = "One. This second sentence is long enough to be spoken on its own, without another. Three."


def speech(ident: str, text: str, model: str = "default", client: str = "") -> InferenceRequest:
    return InferenceRequest(ident, ModelKey(model), SpeechInput(text), client=client)


async def listen(system: System, request: InferenceRequest) -> list[InferenceEvent]:
    with trio.fail_after(300), Generation(system.pool, request) as generation:
        return [event async for event in generation]


def seconds(events: list[InferenceEvent]) -> float:
    chunks = [event for event in events if isinstance(event, AudioChunk)]
    return sum(len(chunk.samples) // 2 for chunk in chunks) / chunks[0].rate


@pytest.mark.deep
async def test_two_at_once_and_one_that_hangs_up(tiny_pocket: Path) -> None:
    settings = Settings(models=(str(tiny_pocket),), shutdown_timeout=60.0)
    heard: dict[str, list[InferenceEvent]] = {}
    async with open_system(settings) as system:

        async def hear(ident: str) -> None:
            heard[ident] = await listen(system, speech(ident, "Hello. Good bye.", client=ident))

        with Generation(system.pool, speech("left", LONG)) as left:
            while not isinstance(await left.receive(), AudioChunk):
                pass
            async with trio.open_nursery() as nursery:
                nursery.start_soon(hear, "a")
                nursery.start_soon(hear, "b")
            beside = [event for event in left.receive_ready() if isinstance(event, AudioChunk | Finished)]
        after = await listen(system, speech("after", "Hello."))
    assert beside
    assert not any(isinstance(event, Finished) for event in beside)
    for events in (*heard.values(), after):
        assert isinstance(events[-1], Finished)
        assert seconds(events) == pytest.approx(events[-1].usage.spoken)
    assert seconds(heard["a"]) == seconds(heard["b"]) == pytest.approx(6.96)


@pytest.mark.deep
async def test_a_short_text_needs_no_slot_beside_long_ones(tiny_pocket: Path) -> None:
    settings = Settings(models=(str(tiny_pocket),), max_batch=1, max_queue=3, shutdown_timeout=60.0)
    ended: list[str] = []
    async with open_system(settings) as system, trio.open_nursery() as nursery:

        async def hear(ident: str, text: str) -> None:
            await listen(system, speech(ident, text))
            ended.append(ident)

        with Generation(system.pool, speech("first", LONG)) as first:
            while not isinstance(await first.receive(), AudioChunk):
                pass
            for ident in ("second", "third"):
                nursery.start_soon(hear, ident, LONG)
            await hear("short", "Hello.")
            assert ended == ["short"]
            assert not any(isinstance(event, Finished) for event in first.receive_ready())
        nursery.cancel_scope.cancel()


@pytest.mark.deep
async def test_another_model_has_the_room_between_two_pieces_and_the_text_is_spoken_on(
    tiny_pocket: Path, tiny_model: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_state, "MAX_TIME_SLICE", 0.0)
    folders = (str(tiny_pocket), str(tiny_model("qwen3")))
    settings = Settings(models=folders, max_loaded_models=1, shutdown_timeout=60.0)
    faults = Faults()
    async with open_system(settings, engines=FaultyEngines(settings, faults)) as system:
        with Generation(system.pool, speech("long", PIECES, tiny_pocket.name)) as long:
            events: list[InferenceEvent] = []
            while not events or not isinstance(events[-1], AudioChunk):
                events.append(await long.receive())
            assert isinstance((await answer(system.pool, "qwen3"))[1], Finished)
            events += long.receive_ready()
            assert not any(isinstance(event, Finished) for event in events)
            events += [event async for event in long]
    assert faults.loads == [tiny_pocket.name, "qwen3", tiny_pocket.name]
    assert isinstance(events[-1], Finished)
    assert seconds(events) == pytest.approx(events[-1].usage.spoken)
    assert max(event.processed for event in events if isinstance(event, PromptProgress)) > len(PIECES) / 2


async def test_a_voice_is_unloaded_under_its_speaker_and_loaded_again(tiny_pocket: Path) -> None:
    settings = Settings(models=(str(tiny_pocket),), shutdown_timeout=0.1)
    async with open_system(settings) as system:
        with Generation(system.pool, speech("cut", LONG)) as cut:
            while not isinstance(await cut.receive(), AudioChunk):
                pass
    async with open_system(settings) as system:
        events = await listen(system, speech("again", "Hello."))
        assert isinstance(events[-1], Finished)


async def test_a_voice_and_a_chat_refuse_what_is_meant_for_the_other(tiny_pocket: Path) -> None:
    async with open_system(Settings(models=(str(tiny_pocket),), shutdown_timeout=60.0)) as system:
        chat = InferenceRequest("chat", ModelKey("default"), ChatInput(()))
        [*_, failed] = await listen(system, chat)
        assert isinstance(failed, Failed)
        assert (failed.problem.status, failed.problem.code) == (400, "unsupported_model_type")
    async with open_system(Settings(shutdown_timeout=60.0)) as system:
        [*_, failed] = await listen(system, speech("speech", "Hello"))
        assert isinstance(failed, Failed)
        assert failed.problem.code == "unsupported_model_type"
