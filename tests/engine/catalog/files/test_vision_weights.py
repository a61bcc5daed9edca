"""Tests of the detection of vision weights by their names."""

from __future__ import annotations

from pathlib import Path

from greenroom.engine.catalog.configuration import holds_vision_weights
from greenroom.tests.support.models.weight_headers import write_weights


def test_vision_weights_are_found_in_an_index_or_headers_and_broken_files_hold_none(tmp_path: Path) -> None:
    assert not holds_vision_weights(tmp_path)
    write_weights(tmp_path / "model-00002.safetensors", "model.visual.blocks.0.attn.qkv.weight")
    assert holds_vision_weights(tmp_path)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text('{"weight_map": {"model.layers.0.self_attn.q_proj.weight": "x"}}')
    assert not holds_vision_weights(tmp_path)
    index.write_text('{"weight_map": {"vpm.encoder.weight": "x"}}')
    assert holds_vision_weights(tmp_path)
    index.write_text("{")
    for junk in (
        b"",
        b"\xff" * 8,
        b"\x05" + bytes(7) + b"{",
        (2**40).to_bytes(8, "little"),
        b"\x02" + bytes(7) + b"[]",
    ):
        (tmp_path / "model-00002.safetensors").write_bytes(junk)
        assert not holds_vision_weights(tmp_path)
