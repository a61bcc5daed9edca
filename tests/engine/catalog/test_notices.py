"""Operators are warned about a model that may not answer as its folder suggests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from greenroom.engine.catalog.catalog import Catalog
from greenroom.engine.catalog.description import describe

ADAPTER = "is not applied: the answers are the base model's"
GAPS = "it was trained to fill gaps in texts"


def notices(folder: Path, *files: str, **config: Any) -> tuple[str, ...]:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    for name in files:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("{}")
    [entry] = Catalog((str(folder),), cache=folder / "none").entries()
    found = describe(entry)
    assert found.problem is None
    return found.notices


@pytest.mark.parametrize(
    "weights", ["adapters.safetensors", "adapter_model.safetensors", "adapter_model.bin"]
)
def test_an_adapter_beside_the_weights_is_told(tmp_path: Path, weights: str) -> None:
    [told] = notices(tmp_path / "m", weights, "adapter_config.json", model_type="llama")
    assert f"({weights})" in told
    assert ADAPTER in told


def test_neither_a_configuration_nor_weights_alone_are_an_adapter(tmp_path: Path) -> None:
    assert notices(tmp_path / "a", "adapter_config.json", model_type="llama") == ()
    assert notices(tmp_path / "b", "adapters.safetensors", model_type="llama") == ()


def test_an_encoder_that_fills_gaps_is_told(tmp_path: Path) -> None:
    masked = {"model_type": "bert", "architectures": ["BertForMaskedLM"], "hidden_size": 8}
    [told] = notices(tmp_path / "a", **masked)
    assert told.startswith(GAPS)
    assert notices(tmp_path / "b", "modules.json", **masked) == ()
    assert notices(tmp_path / "c", "1_Pooling/config.json", **masked) == ()
    assert notices(tmp_path / "d", **{**masked, "architectures": ["BertModel"]}) == ()
