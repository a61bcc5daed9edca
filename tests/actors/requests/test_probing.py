"""Probes of tiny models: the record tells what they do, and serving follows it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from greenroom.actors.engines.engines import Engines
from greenroom.actors.requests.generation import Generation
from greenroom.actors.store.read_only import read_capabilities
from greenroom.actors.system import System, open_system
from greenroom.actors.transfers.fetch_model import Wish
from greenroom.engine.catalog.model_files import fingerprint
from greenroom.engine.probe.probe import WEATHER
from greenroom.schemas.events.events import InferenceEvent, ReasoningDelta, ToolCallDelta
from greenroom.schemas.messages.messages import Message, TextPart
from greenroom.schemas.messages.requests import ChatInput, InferenceRequest
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.models.capabilities import ProbedCapabilities
from greenroom.schemas.models.lifecycle import ModelState
from greenroom.schemas.protocols.pool_protocol import Probed, ProbeModel
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.actors.actor_systems import eventually, status
from greenroom.tests.support.models.calling_models import CallingModel, make_calling_model

_THOUGHT = "<think>\nLet me see.\n</think>\n\n"
_SEED_THOUGHT = "<seed:think>Let me see.</seed:think>"

FAMILIES: tuple[tuple[CallingModel, dict[str, Any]], ...] = (
    (
        CallingModel("thinker", "thinking", "qwen3", "hermes_json", _THOUGHT),
        {"model_family": "qwen", "thinking_parser_id": "think_tag", "supports_toggle": True},
    ),
    (
        CallingModel("stubborn", "thinking", "qwen3", "hermes_json", _THOUGHT, always_thinks=True),
        {"model_family": "qwen", "thinking_parser_id": "think_tag", "supports_toggle": False},
    ),
    (CallingModel("lama", "llama", "llama", "llama_json"), {"model_family": "llama"}),
    (CallingModel("wind", "mistral", "mistral", "mistral"), {"model_family": "mistral"}),
    (CallingModel("stone", "granite", "granite", "hermes_json"), {"model_family": "granite"}),
    (CallingModel("zed", "glm4", "glm4", "glm4_native"), {"model_family": "glm4"}),
    (
        CallingModel("jewel", "gemma", "gemma3", "hermes_json"),
        {"model_family": "gemma", "supports_native_tools": False, "tool_format": "injection"},
    ),
    (CallingModel("LFM2-tiny", "liquid", "smollm3", "mlx_lm.pythonic"), {"model_family": "liquid"}),
    (CallingModel("gpt-oss-tiny", "gpt_oss", "smollm3", "harmony"), {"model_family": "gpt_oss"}),
    # These write other formats than their templates show.
    (CallingModel("strayed", "qwen", "qwen3", "llama_xml"), {"model_family": "qwen"}),
    (
        CallingModel("astray", "thinking", "qwen3", "mistral", _SEED_THOUGHT),
        {"model_family": "qwen", "thinking_parser_id": "seed_oss", "supports_toggle": True},
    ),
)


@pytest.mark.parametrize(("model", "facts"), FAMILIES, ids=[model.name for model, _ in FAMILIES])
async def test_the_record_is_right_and_serving_follows_it(
    model: CallingModel, facts: dict[str, Any], tmp_path: Path
) -> None:
    folder = make_calling_model(model, tmp_path)
    settings = Settings(models=(str(folder),), db=str(tmp_path / "db"))
    async with open_system(settings) as system:
        found = await probe(system)
        assert (await status(system.pool, model.name)).state is ModelState.IDLE
    expected = ProbedCapabilities(
        model.name,
        "text",
        tool_parser_id=model.writes,
        probed_at=found.probed_at,
        files=fingerprint(folder),
        **{
            "supports_native_tools": True,
            "supports_thinking": bool(model.thought),
            "tool_format": "native",
            "practical_max_tokens": 8192,
            **facts,
        },
    )
    assert found == expected
    assert read_capabilities(tmp_path / "db") == (found,)
    async with open_system(settings) as system:
        events = await answer(system, "What is the weather in Quito?")
    assert calls(events) == [("get_weather", '{"city": "Quito"}')]
    assert any(isinstance(event, ReasoningDelta) for event in events) is bool(model.thought)


async def test_a_model_that_was_in_memory_follows_its_probe_at_once(tmp_path: Path) -> None:
    folder = make_calling_model(CallingModel("strayed", "qwen", "qwen3", "llama_xml"), tmp_path)
    async with open_system(Settings(models=(str(folder),))) as system:
        assert calls(await answer(system, "What is the weather in Quito?")) == []
        await probe(system)
        assert (await status(system.pool, "strayed")).state is ModelState.READY
        made = calls(await answer(system, "What is the weather in Quito?"))
    assert made == [("get_weather", '{"city": "Quito"}')]


async def test_the_demo_model_calls_and_reasons(tmp_path: Path) -> None:
    async with open_system(Settings(db=str(tmp_path / "db"))) as system:
        found = await probe(system, "greenroom-demo", max_tokens=256)
    assert (found.tool_parser_id, found.thinking_parser_id) == ("hermes_json", "think_tag")
    assert (found.supports_native_tools, found.supports_thinking, found.supports_toggle) == (True, True, True)


async def test_an_embedding_model_is_measured(tiny_encoder: Callable[[str], Path]) -> None:
    found = await probed(tiny_encoder("bert"))
    assert (found.model_type, found.embedding_dimensions, found.is_normalized) == ("embeddings", 64, True)
    assert found.max_sequence_length == 128
    assert (found.tool_parser_id, found.practical_max_tokens, found.supports_tts) == (None, None, None)


async def test_a_probe_waits_for_its_models_files_however_long_they_take(
    tiny_encoder: Callable[[str], Path],
) -> None:
    folder, begun, go_on = tiny_encoder("bert"), threading.Event(), threading.Event()

    def fetch(_wish: Wish, _report: object = None) -> Path:
        begun.set()
        go_on.wait()
        return folder

    async def is_patient() -> bool:
        return system.statistics().working == 0

    settings = Settings(models=("org/absent",))
    engines, found = Engines(settings), list[ProbedCapabilities]()

    async def ask() -> None:
        found.append(await probe(system))

    async with open_system(settings, engines=engines) as system, trio.open_nursery() as nursery:
        engines.downloads = fetch
        nursery.start_soon(ask)
        await trio.to_thread.run_sync(begun.wait)
        await eventually(is_patient)
        go_on.set()
    assert found[0].embedding_dimensions == 64


async def test_a_reranker_scores(tiny_encoder: Callable[[str], Path]) -> None:
    found = await probed(tiny_encoder("bert-rerank"))
    assert (found.model_type, found.max_sequence_length) == ("rerank", 128)


@pytest.mark.deep
async def test_a_voice_speaks_and_a_listener_transcribes(tiny_pocket: Path, tiny_whisper: Path) -> None:
    voice, listener = await probed(tiny_pocket), await probed(tiny_whisper)
    assert (voice.model_type, voice.supports_tts, voice.supports_stt) == ("speech", True, False)
    assert (listener.model_type, listener.supports_tts, listener.supports_stt) == (
        "transcription",
        False,
        True,
    )


async def test_a_vision_model_sees(tiny_vision_model: Callable[[str], Path]) -> None:
    found = await probed(tiny_vision_model("qwen2_vl"), max_tokens=4)
    assert (found.model_type, found.supports_multi_image, found.supports_video) == ("vision", True, False)
    assert (found.tool_parser_id, found.supports_thinking) == (None, None)


async def probed(folder: Path, max_tokens: int | None = None) -> ProbedCapabilities:
    async with open_system(Settings(models=(str(folder),), shutdown_timeout=60.0)) as system:
        return await probe(system, max_tokens=max_tokens)


async def probe(system: System, name: str = "default", max_tokens: int | None = None) -> ProbedCapabilities:
    probed = await system.pool.ask(ProbeModel(name, max_tokens), Probed)
    assert isinstance(probed, Probed), probed
    return probed.record


async def answer(system: System, question: str) -> list[InferenceEvent]:
    """Return the events with which a model answers that may call a tool."""
    chat = ChatInput((Message("user", (TextPart(question),)),), (WEATHER,))
    with Generation(system.pool, InferenceRequest("r", ModelKey("default"), chat)) as generation:
        return [event async for event in generation]


def calls(events: list[InferenceEvent]) -> list[tuple[str, str]]:
    """Return names and arguments of the calls in an answer."""
    made: list[tuple[str, str]] = []
    for event in events:
        match event:
            case ToolCallDelta(name=str(name)):
                made.append((name, event.arguments))
            case ToolCallDelta():
                made[-1] = (made[-1][0], made[-1][1] + event.arguments)
    return made
