"""Tests of the prefill settings: their effect on the chunks of a prompt beside a stream."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from greenroom.engine.text.text_engine import TextEngine
from greenroom.http.settings.sources import read_settings
from greenroom.schemas.events.events import PromptProgress, TextDelta
from greenroom.schemas.messages.generation import GenerationParameters
from greenroom.schemas.messages.prepared_input import PreparedPrompt
from greenroom.schemas.messages.requests import InferenceRequest, RawInput
from greenroom.schemas.model_key import ModelKey
from greenroom.tests.support.engines.text_engines import opened

TinyModel = Callable[..., Path]
PROMPT = tuple(index % 1900 + 5 for index in range(600))


@pytest.fixture
def configured(tmp_path: Path) -> Callable[..., Path]:
    def write(**values: float) -> Path:
        file = tmp_path / "greenroom.toml"
        lines = [f"{name} = {value}" for name, value in values.items()]
        file.write_text("\n".join(lines))
        return file

    return write


def submit(engine: TextEngine, name: str, prompt: tuple[int, ...], max_tokens: int) -> None:
    request = InferenceRequest(name, ModelKey("tiny"), RawInput(prompt))
    parameters = GenerationParameters(temperature=0.0)
    engine.submit(request, PreparedPrompt(prompt, frozenset(), max_tokens, parameters, parse=False))


def chunks_beside_a_stream(folder: Path, file: Path | None, **flags: float) -> list[int]:
    """Return the tokens of each chunk of a prompt that arrives during another answer."""
    settings = read_settings(file, {"prefix_cache_bytes": 0, **flags})
    engine = opened(folder, settings)
    submit(engine, "stream", PROMPT[:8], 10_000)
    while not any(isinstance(event, TextDelta) for _, event in engine.step()):
        pass
    submit(engine, "prompt", PROMPT, 1)
    computed = [0]
    while computed[-1] < len(PROMPT):
        events = [event for name, event in engine.step() if name == "prompt"]
        computed += [event.processed for event in events if isinstance(event, PromptProgress)]
    engine.close()
    return [after - before for before, after in pairwise(computed)]


def test_min_prefill_chunk_is_computed_whatever_it_costs(
    tiny_model: TinyModel, configured: Callable[..., Path]
) -> None:
    file = configured(min_prefill_chunk=48, max_stall=1e-9)
    *chunks, last = chunks_beside_a_stream(tiny_model("qwen3"), file)
    assert min(chunks) == 48
    assert chunks[-3:] == [48] * 3  # the first ones are larger, as long as nobody knows what they cost
    assert last <= 48


@pytest.mark.deep
def test_max_stall_bounds_the_chunks(tiny_model: TinyModel, configured: Callable[..., Path]) -> None:
    assert len(chunks_beside_a_stream(tiny_model("qwen3"), configured(max_stall=1e-9))) > 100
    assert chunks_beside_a_stream(tiny_model("qwen3"), None, max_stall=float("inf")) == [len(PROMPT)]
