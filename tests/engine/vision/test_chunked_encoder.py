"""A tower computed in pieces yields the same features, bit for bit, and no piece takes long."""

from __future__ import annotations

import gc
from typing import Any

import mlx.core as mx
import pytest
from mlx import nn

from greenroom.engine.vision import chunked_encoder
from greenroom.engine.vision.chunked_encoder import ChunkedEncoder
from greenroom.engine.vision.image_encoder import ImageEncoding
from greenroom.tests.support.engines.vision_engines import loaded, picture, prepared
from greenroom.tests.support.models.tiny_vision_kinds import VISION_KINDS
from greenroom.tests.support.models.tiny_vision_models import TinyVisionModel


@pytest.mark.parametrize("kind", VISION_KINDS)
def test_pieces_come_out_as_the_whole_does(
    tiny_vision_model: TinyVisionModel, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunked_encoder, "_PIECE_WORK", {"cpu": 1e5, "gpu": 1e5})
    folder = tiny_vision_model(kind)
    model = loaded(folder)[0].model
    tokens, (image,) = prepared(folder, ["Look ", picture(1), " here"])
    ids = mx.array([list(tokens[image.start : image.end])])
    inputs = {name: mx.array(value) for name, value in image.inputs.items()}

    def embed() -> Any:
        return model.get_input_embeddings(ids, mask=mx.ones_like(ids), **inputs)

    pieces = ChunkedEncoder(model, embed)
    count = 0
    while not pieces.is_done:
        pieces.advance()
        count += 1
    assert count > 20
    assert mx.array_equal(pieces.result().inputs_embeds, embed().inputs_embeds)


@pytest.mark.parametrize("kind", VISION_KINDS)
def test_an_image_nobody_wants_any_more_is_freed_at_once(
    tiny_vision_model: TinyVisionModel, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunked_encoder, "_PIECE_WORK", {"cpu": 1e5, "gpu": 1e5})
    folder = tiny_vision_model(kind)
    model = loaded(folder)[0].model
    tokens, (image,) = prepared(folder, ["Look ", picture(1, 300), " here"])
    gc.collect()
    gc.disable()
    mx.synchronize()
    before = mx.get_active_memory()
    try:
        encoding = ImageEncoding(model, image, tokens[image.start : image.end])
        for _ in range(10):
            encoding.advance(0.0)
        assert mx.get_active_memory() > before
        del encoding
        assert mx.get_active_memory() == before
    finally:
        gc.enable()


def test_a_tower_that_does_not_bear_it_is_computed_whole(
    tiny_vision_model: TinyVisionModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tiny_vision_model("gemma3")
    model = loaded(folder)[0].model
    tokens, (image,) = prepared(folder, ["Look ", picture(1), " here"])
    ids = mx.array([list(tokens[image.start : image.end])])
    inputs = {name: mx.array(value) for name, value in image.inputs.items()}

    def embed() -> Any:
        return model.get_input_embeddings(ids, mask=mx.ones_like(ids), **inputs)

    def broken(*_: Any) -> Any:
        raise TypeError("not like this")

    monkeypatch.setattr(chunked_encoder.RowChunkedLayers, "_in_pieces", broken)
    tower, attention = model.vision_tower, mx.fast.scaled_dot_product_attention
    pieces = ChunkedEncoder(model, embed)
    pieces.advance()
    assert pieces.is_done
    assert model.vision_tower is tower
    assert mx.fast.scaled_dot_product_attention is attention
    assert mx.array_equal(pieces.result().inputs_embeds, embed().inputs_embeds)


def test_every_part_of_a_layer_is_in_a_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunked_encoder, "_PIECE_WORK", {"cpu": 6000.0, "gpu": 6000.0})
    monkeypatch.setattr(chunked_encoder, "_TILE", {"cpu": 1, "gpu": 1})
    module: dict[str, Any] = {"layer": nn.Linear(8, 8)}
    split = chunked_encoder.RowChunkedLayers()
    with split.replacing(module):
        output = module["layer"](mx.ones((60, 8)))
    pieces = list(split.pop_pieces())
    assert len(pieces) > 2
    assert sum(part.shape[0] for piece in pieces for part in piece) == output.shape[0]
