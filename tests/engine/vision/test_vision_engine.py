"""Prompts with images in a batch with text prompts: each answer equals mlx-vlm's own."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import mlx.core as mx
import pytest

from greenroom.engine.text.prefix_cache.prefix_cache import PrefixCache
from greenroom.engine.text.prompt_features import PromptFeatures
from greenroom.engine.text.scheduler.prefill_policy import PrefillPolicy
from greenroom.engine.vision.image_encoder import ImageEncoding
from greenroom.schemas.events.events import Failed
from greenroom.schemas.messages.prepared_input import PreparedPrompt
from greenroom.schemas.messages.requests import AppliedAdapter
from greenroom.tests.support.engines.schedules import deep_only
from greenroom.tests.support.engines.text_engines import GREEDY, finished
from greenroom.tests.support.engines.vision_engines import (
    Parts,
    VisionDriver,
    expected,
    library,
    picture,
    prepared,
)
from greenroom.tests.support.models.tiny_vision_kinds import VISION_KINDS
from greenroom.tests.support.models.tiny_vision_models import TinyVisionModel

KINDS = ("qwen2_vl", *deep_only(*(kind for kind in VISION_KINDS if kind != "qwen2_vl")))
ONE: Parts = ["def read(self, ", picture(1), " size=-1): return"]
TWO: Parts = ["Look ", picture(2), " and then ", picture(3), " what is it, and why?"]
TEXT: Parts = ["Just text for a change, and nothing else to be seen"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.deep
def test_rows_with_and_without_images_share_a_batch(tiny_vision_model: TinyVisionModel, kind: str) -> None:
    folder = tiny_vision_model(kind)
    driver = VisionDriver(folder, options={"prefix_cache": PrefixCache(1 << 28)})
    prompts = [ONE, TEXT, TWO]
    for prompt in prompts:
        driver.submit(prompt, 60)
    together = 0
    while driver.engine.has_work:
        driver.step()
        together = max(together, *(rows for rows, _ in driver.engine.statistics().batches), 0)
    assert together >= 2
    assert driver.tokens == [expected(folder, prompt, 60) for prompt in prompts]


def test_adapters_of_the_language_layers_share_a_batch_with_the_base(
    tiny_vision_model: TinyVisionModel, tmp_path: Path
) -> None:
    base, fused, adapter = tmp_path / "qwen2_vl", tmp_path / "qwen2_vl-fused", tmp_path / "adapter"
    for copy in (base, fused):
        shutil.copytree(tiny_vision_model("qwen2_vl"), copy)
    layer = library(fused)[0].language_model.model.layers[0].self_attn.q_proj
    outputs, inputs = layer.weight.shape
    mx.random.seed(3)
    a, b = mx.random.normal((inputs, 4), scale=0.3), mx.random.normal((4, outputs), scale=0.3)
    layer.weight = layer.weight + 2.0 * (a @ b).T
    adapter.mkdir()
    path = "language_model.model.layers.0.self_attn.q_proj"
    mx.save_safetensors(str(adapter / "adapters.safetensors"), {f"{path}.lora_a": a, f"{path}.lora_b": b})
    parameters = {"model": "base", "lora_parameters": {"rank": 4, "scale": 2.0}}
    (adapter / "adapter_config.json").write_text(json.dumps(parameters))
    driver = VisionDriver(base, options={"adapter_bytes": 1 << 30, "prefix_cache": PrefixCache(1 << 28)})
    asked = [None, AppliedAdapter("adapter", str(adapter))]
    for applied in asked * 2:
        driver.submit(ONE, 12, applied=applied)
    driver.submit(TEXT, 12, applied=asked[1])
    driver.run()
    plain, changed = expected(base, ONE, 12), expected(fused, ONE, 12)
    assert plain != changed
    assert driver.tokens == [plain, changed, plain, changed, expected(fused, TEXT, 12)]


@pytest.mark.parametrize("kind", VISION_KINDS)
def test_an_image_is_computed_in_slices(tiny_vision_model: TinyVisionModel, kind: str) -> None:
    folder = tiny_vision_model(kind)
    slices = PrefillPolicy(min_chunk=5, max_chunk=5)
    driver = VisionDriver(folder, options={"prefill_policy": slices})
    driver.submit(TWO, 20)
    driver.run()
    assert driver.tokens == [expected(folder, TWO, 20)]


def test_a_prompt_that_ends_in_an_image_is_refused(tiny_vision_model: TinyVisionModel) -> None:
    driver = VisionDriver(tiny_vision_model("qwen2_vl"))
    refused = driver.submit(["Look ", picture(1)], 5)
    driver.run()
    (failed,) = driver.events[refused]
    assert isinstance(failed, Failed)
    assert (failed.problem.status, failed.problem.param) == (400, "messages")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.deep
def test_a_second_turn_computes_only_what_is_new(tiny_vision_model: TinyVisionModel, kind: str) -> None:
    folder = tiny_vision_model(kind)
    driver = VisionDriver(folder, options={"prefix_cache": PrefixCache(1 << 28)})
    first: Parts = ["Look at this now: ", picture(1, 300), " and tell me what it is, and why it is there."]
    driver.submit(first, 40)
    driver.run()
    answer = driver.output_processor.adapter.tokenizer.wrapped.decode(driver.tokens[0])
    second: Parts = [*first, answer, " And what is behind it?"]
    asked = driver.submit(second, 20)
    other = driver.submit([first[0], picture(2, 300), *second[2:]], 20)
    driver.run()
    usage = finished(driver.events[asked]).usage
    prompt = finished(driver.events["0"]).usage.prompt
    assert usage.cached >= prompt - 1
    assert usage.images > 0
    assert finished(driver.events[other]).usage.cached < 20
    assert driver.tokens[1] == expected(folder, second, 20)


def test_a_prompt_that_begins_again_computes_the_image_that_it_needs(
    tiny_vision_model: TinyVisionModel,
) -> None:
    folder = tiny_vision_model("qwen2_vl")
    driver = VisionDriver(folder)
    tokens, images = prepared(folder, TWO)
    prompt = driver.encoder.open(
        PreparedPrompt(tokens, max_tokens=1, parameters=GREEDY, stop_token_ids=frozenset(), images=images)
    )
    assert prompt is not None
    _compute(prompt, images[0].start)
    prompt.arguments(images[0].end, images[1].start)  # Releases the first image's features.
    prompt.compute(images[1].start, milliseconds=0)
    assert prompt.ready(images[1].start) == 0
    driver.encoder.evict_to(0)
    _compute(prompt, images[0].start)
    kept = driver.encoder.cached(images[0])
    alone = ImageEncoding(library(folder)[0], images[0], tokens[images[0].start : images[0].end])
    alone.advance(math.inf)
    assert kept is not None
    assert alone.features is not None
    assert mx.array_equal(kept.embeddings, alone.features.embeddings)


def _compute(prompt: PromptFeatures, start: int) -> None:
    while not prompt.ready(start):
        prompt.compute(start, milliseconds=math.inf)
