"""A tower computed in pieces yields the same features, bit for bit, and no piece takes long."""

from __future__ import annotations

import ast
import gc
import importlib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import mlx.core as mx
import pytest
from mlx import nn

from greenroom.engine.loading.libraries import import_vision_libraries
from greenroom.engine.vision import chunked_encoder
from greenroom.engine.vision.chunked_encoder import (
    ChunkedEncoder,
    SplitAttention,
    attending_functions,
    uncompile_attention,
)
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


_ROWS, _HEADS, _COUNT, _WIDTH = 2, 4, 70, 16


def _attend(named: dict[str, Any], shared: int = 1) -> mx.array:
    mx.random.seed(0)
    # Towers use this memory layout: the heads of a token are adjacent.
    queries, keys, values = (
        mx.random.normal((_ROWS, _COUNT, heads, _WIDTH)).swapaxes(1, 2)
        for heads in (_HEADS, _HEADS // shared, _HEADS // shared)
    )
    return mx.fast.scaled_dot_product_attention(queries, keys, values, scale=0.3, **named)


@pytest.mark.parametrize("shared", [1, 2])
@pytest.mark.parametrize(
    "mask", [(), (_COUNT,), (1,), (_ROWS, 1, _COUNT), (_ROWS, _HEADS, _COUNT), (_HEADS, 1)]
)
@pytest.mark.parametrize("limit", [1e4, 3e5])
def test_parts_are_those_of_the_whole(
    shared: int, mask: tuple[int, ...], limit: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunked_encoder, "_PIECE_WORK", {"cpu": limit, "gpu": limit})
    named: dict[str, Any] = {}
    if mask:
        named["mask"] = mx.random.uniform(shape=(*mask, _COUNT), key=mx.random.key(1)) < 0.7
    whole = _attend(named, shared)
    split = chunked_encoder.RowChunkedLayers()
    with split.replacing({}):
        parted = _attend(named, shared)
    pieces = [part for piece in split.pop_pieces() for part in piece]
    assert len(pieces) > 2 * _ROWS
    assert mx.array_equal(parted, whole)


def test_sinks_are_those_of_a_parts_heads() -> None:
    queries, keys, values = (mx.random.normal((1, 4, 8, 8), key=mx.random.key(seed)) for seed in range(3))
    sinks = mx.array([0.0, 3.0, -2.0, 9.0])
    attend = mx.fast.scaled_dot_product_attention
    whole = attend(queries, keys, values, scale=1.0, sinks=sinks)
    attention = SplitAttention(attend, queries, keys, values, {"scale": 1.0, "sinks": sinks})
    assert mx.allclose(attention.part(0, 1, 2, 0, 8), whole[:, 1:3], atol=1e-6)


@pytest.mark.parametrize(("limit", "heads"), [(1.0, 2), (150.0, 2), (470.0, 4), (1e9, 8)])
def test_a_part_has_few_heads_before_it_has_few_queries(limit: float, heads: int) -> None:
    """Heads that share keys stay together, since each part reads its keys again."""
    queries, keys = mx.zeros((1, 8, 64, 4)), mx.zeros((1, 4, 64, 4))
    attention = SplitAttention(mx.fast.scaled_dot_product_attention, queries, keys, keys, {})
    assert attention.heads_at_once(work=1.0, limit=limit, tile=100) == heads


@pytest.fixture
def compiling(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Enable compilation as in a server; other tests disable it: a kernel costs half a second on a CPU."""
    monkeypatch.delenv("MLX_DISABLE_COMPILE")
    mx.enable_compile()
    yield
    mx.disable_compile()


@pytest.mark.usefixtures("compiling")
def test_other_models_run_compiled_while_a_tower_is_split() -> None:
    traced = 0

    @mx.compile
    def function(array: mx.array) -> mx.array:
        nonlocal traced
        traced += 1
        return array + 1

    function(mx.zeros(3))
    with chunked_encoder.RowChunkedLayers().replacing({}):
        function(mx.zeros(3))
    function(mx.zeros(3))
    assert traced == 1


@pytest.mark.usefixtures("compiling")
def test_attention_that_the_library_compiles_is_split(
    tiny_vision_model: TinyVisionModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Qwen3-VL's attention is compiled: its parts could not be evaluated, and a second image has none."""
    monkeypatch.setattr(chunked_encoder, "_PIECE_WORK", {"cpu": 1e6, "gpu": 1e6})
    folder = tiny_vision_model("qwen3_vl", wide=True)
    model = loaded(folder)[0].model
    tokens, (image,) = prepared(folder, ["Look ", picture(1, 300), " here"])
    ids = mx.array([list(tokens[image.start : image.end])])
    inputs = {name: mx.array(value) for name, value in image.inputs.items()}

    def embed() -> Any:
        return model.get_input_embeddings(ids, mask=mx.ones_like(ids), **inputs)

    parts = list[mx.array]()
    note = chunked_encoder.RowChunkedLayers._note

    def noted(split: chunked_encoder.RowChunkedLayers, output: mx.array, work: float) -> mx.array:
        if output.ndim == 4:  # Only attention outputs have four dimensions.
            parts.append(output)
        return note(split, output, work)

    monkeypatch.setattr(chunked_encoder.RowChunkedLayers, "_note", noted)
    whole = embed().inputs_embeds
    for _ in range(2):
        parts.clear()
        pieces = ChunkedEncoder(model, embed)
        while not pieces.is_done:
            pieces.advance()
        assert len(parts) > 20
        mx.eval(parts)
        assert mx.array_equal(pieces.result().inputs_embeds, whole)


def _tower_files() -> list[Path]:
    import_vision_libraries()
    models = Path(inspect.getfile(importlib.import_module("mlx_vlm.models.base"))).parent
    return sorted([*models.glob("*/vision*.py"), *models.glob("*/*_tower.py"), models / "base.py"])


def test_no_tower_of_the_library_compiles_its_layers() -> None:
    """Compiled layers would be hidden like compiled attention, but cannot be found by name."""
    compiled = [
        (file, node)
        for file in _tower_files()
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef)
        and any("mx.compile" in ast.unparse(decorator) for decorator in node.decorator_list)
    ]
    assert len(compiled) > 4
    for file, function in compiled:
        assert "self" not in ast.unparse(function.args), (file, function.name)
        called = {ast.unparse(node.func) for node in ast.walk(function) if isinstance(node, ast.Call)}
        assert not {name for name in called if name.startswith("self")}, (file, function.name)


def test_only_attention_of_towers_is_taken_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def attend(queries: mx.array, scale: float = 2.0) -> mx.array:
        return mx.fast.scaled_dot_product_attention(queries, queries, queries, scale=scale)

    def double(array: mx.array) -> mx.array:
        return array * 2

    tower, language = (
        ModuleType("mlx_vlm.models.example.vision"),
        ModuleType("mlx_vlm.models.example.language"),
    )
    for module in (tower, language):
        monkeypatch.setitem(sys.modules, module.__name__, module)
        vars(module).update(attend=mx.compile(attend), double=mx.compile(double))
    uncompile_attention()
    assert set(attending_functions(language)) == {"attend"}
    assert attending_functions(tower) == {}
    assert type(vars(tower)["attend"]) is FunctionType
    assert type(vars(tower)["double"]) is not FunctionType
    queries = mx.random.normal((1, 2, 8, 16), key=mx.random.key(0))
    assert mx.array_equal(vars(tower)["attend"](queries), attend(queries))
