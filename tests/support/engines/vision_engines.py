"""Engines over tiny vision models, driven as in `text_engines`, and mlx-vlm's own answers."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from PIL import Image

from greenroom.engine.adapters.adapter import Adapter, make_adapter
from greenroom.engine.kv_cache.quantization import quantize_kv
from greenroom.engine.loading.batching import BackgroundCheck
from greenroom.engine.loading.libraries import import_vision_libraries
from greenroom.engine.loading.load_model import load_model
from greenroom.engine.lora.files import open_folder
from greenroom.engine.resources.memory_account import MemoryAccount, Share
from greenroom.engine.text.text_engine import TextEngine
from greenroom.engine.tokenizer.tokenizer import load_tokenizer
from greenroom.engine.vision.image_encoder import ImagePromptEncoder
from greenroom.engine.vision.open_vision_engine import load_vision_lazily
from greenroom.schemas.events.events import InferenceEvent
from greenroom.schemas.messages.generation import GenerationParameters
from greenroom.schemas.messages.prepared_input import PreparedImage, PreparedPrompt
from greenroom.schemas.messages.requests import AppliedAdapter, InferenceRequest, RawInput
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.models.capabilities import CapabilityRecord
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.engines.fixed_costs import CountedClock, FixedCosts
from greenroom.tests.support.engines.stepped_engines import SteppedEngine
from greenroom.tests.support.engines.text_engines import GREEDY, RecordingOutputProcessor
from greenroom.tests.support.models.tiny_hearing_kinds import HEARING_KINDS
from greenroom.tests.support.models.tiny_vision_kinds import VISION_KINDS, VisionKind


def picture(seed: int, size: int = 100) -> Image.Image:
    """Return an image of colored blocks that differs for each seed."""
    blocks = np.random.default_rng(seed).integers(0, 256, (10, 10, 3), dtype=np.uint8)
    return Image.fromarray(blocks).resize((size, size), Image.Resampling.NEAREST)


Parts = Sequence[str | Image.Image]
"""Parts of a prompt: texts and images."""

Prepared = tuple[tuple[int, ...], tuple[PreparedImage, ...]]


@cache
def loaded(folder: Path) -> tuple[Any, Adapter]:
    """Return the model and its adapter, shared by all tests."""
    record = CapabilityRecord("vision", "default", "tiny", 32768)
    adapter = make_adapter(record, load_tokenizer(folder), Settings())
    unproved: list[BackgroundCheck] = []
    model = load_model(folder, Settings(), on_unchecked=unproved.append, load_lazily=load_vision_lazily)
    while unproved and unproved[0].delay is not None:
        unproved[0].advance()
    return model, adapter


@cache
def library(folder: Path) -> tuple[Any, Any]:
    """Return mlx-vlm's own model and processor."""
    import_vision_libraries()
    from mlx_vlm.utils import load

    model, processor = load(str(folder))
    return model, processor


def _kind_of(folder: Path) -> VisionKind:
    kinds = {**VISION_KINDS, **HEARING_KINDS}
    return next(kinds[kind] for kind in sorted(kinds, key=len, reverse=True) if folder.name.startswith(kind))


def text_of_parts(folder: Path, parts: Parts) -> str:
    """Return the prompt's text with the model type's placeholder for each image."""
    mark = _kind_of(folder).mark
    return "".join(part if isinstance(part, str) else mark for part in parts)


def _joined(parts: Parts) -> list[str | Image.Image]:
    """Return parts with adjacent texts joined, as they are tokenized."""
    joined = list[str | Image.Image]()
    for part in parts:
        if joined and isinstance(part, str) and isinstance(joined[-1], str):
            joined[-1] += part
        else:
            joined.append(part)
    return joined


def prepared(folder: Path, parts: Parts) -> Prepared:
    """Return a prompt's tokens and images, each image processed by itself."""
    from mlx_vlm.utils import prepare_inputs

    _, processor = library(folder)
    tokens, images = list[int](), list[PreparedImage]()
    for part in _joined(parts):
        if isinstance(part, str):
            tokens += processor.tokenizer.encode(part, add_special_tokens=False)
            continue
        mark = text_of_parts(folder, [part])
        made = prepare_inputs(processor, images=[part], prompts=mark)  # type: ignore[no-untyped-call]
        span = np.array(made.pop("input_ids"))[0].tolist()
        made.pop("attention_mask", None)
        inputs = {name: np.array(value) for name, value in made.items() if value is not None}
        digest = hashlib.sha256(part.tobytes()).digest()
        images.append(PreparedImage(len(tokens), len(tokens) + len(span), digest, inputs, len(span)))
        tokens += span
    return tuple(tokens), tuple(images)


def expected(folder: Path, parts: Parts, count: int) -> list[int]:
    """Return the greedy continuation by `mlx_vlm.stream_generate`."""
    from mlx_vlm.generate import stream_generate

    model, processor = library(folder)
    answer = stream_generate(
        model,
        processor,
        text_of_parts(folder, parts),
        image=[part for part in parts if not isinstance(part, str)] or None,  # type: ignore[misc]
        max_tokens=count,
        temperature=0.0,
    )
    return [response.token for response in answer if response.token is not None][:count]


@attrs.define(eq=False)
class VisionDriver(SteppedEngine):
    """An engine, with the tokens and events of each request in order of submission.

    Args:
        adapter: Adapter that prepares chats and parses their answers; by default, prompts are raw.
    """

    folder: Path
    kv_bits: int | None = None
    account: MemoryAccount | None = None
    options: dict[str, Any] = attrs.field(factory=dict)
    adapter: Adapter | None = None
    events: dict[str, list[InferenceEvent]] = attrs.field(factory=dict)
    output_processor: RecordingOutputProcessor = attrs.field(init=False)
    engine: TextEngine = attrs.field(init=False)
    encoder: ImagePromptEncoder = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        model, adapter = loaded(self.folder)
        self.output_processor = RecordingOutputProcessor(self.adapter or adapter)
        self.encoder = ImagePromptEncoder(model, CountedClock())
        options = {"costs": FixedCosts(), "clock": CountedClock(), **self.options}
        self.engine = TextEngine(
            quantize_kv(model, self.kv_bits),
            self.output_processor,
            share=Share(self.account) if self.account else None,
            features=self.encoder,
            **options,
        )

    @property
    def tokens(self) -> list[list[int]]:
        return self.output_processor.tokens

    def submit(
        self,
        parts: Parts,
        max_tokens: int,
        parameters: GenerationParameters = GREEDY,
        made: Prepared | None = None,
        applied: AppliedAdapter | None = None,
        **fields: Any,
    ) -> str:
        """Submit a prompt of texts and images, prepared now or before; return the request's id."""
        tokens, images = made or prepared(self.folder, parts)
        request_id = str(len(self.events))
        self.events[request_id] = []
        request = InferenceRequest(request_id, ModelKey("tiny"), RawInput(tokens), applied=applied)
        if applied is not None:
            fields["adapter"] = open_folder(Path(applied.folder), 1 << 30)
        options: dict[str, Any] = {"stop_token_ids": frozenset(), "parse": False, **fields}
        ready = PreparedPrompt(tokens, max_tokens=max_tokens, parameters=parameters, images=images, **options)
        self.engine.submit(request, ready)
        return request_id

    def submit_chat(self, request: InferenceRequest) -> None:
        """Submit a chat request that the adapter prepares."""
        assert self.adapter is not None
        self.events[request.id] = []
        self.engine.submit(request, self.adapter.prepare_input(request))
