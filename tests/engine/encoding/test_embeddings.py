"""mlx-embeddings is used only for architectures that nothing else supports: it is GPL-3.0."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from greenroom.engine.catalog.encoder_kinds import EXTRA_ENCODERS, embedding_modules
from greenroom.engine.catalog.kind_detection import detect
from greenroom.engine.catalog.libraries import models_of
from greenroom.schemas.problems import ProblemError
from greenroom.tests.support.engines.embedders import Embedder, embedding_request, open_embedder
from greenroom.tests.support.models.tiny_encoders import ENCODERS, RERANKERS, TinyEncoder
from greenroom.tests.support.packages.without_packages import run_without
from greenroom.tests.support.texts.random_texts import random_texts

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = "mlx_embeddings"
TEXTS = random_texts(12)
CONFIG: dict[str, Any] = {
    "model_type": "llama_nemotron_vl",
    "architectures": ["LlamaNemotronVLModel"],
    "force_image_size": 32,
    "llm_config": {
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "intermediate_size": 128,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "max_position_embeddings": 512,
    },
    "vision_config": {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "image_size": 32,
        "patch_size": 16,
    },
}


def make_folder(folder: Path, tokenizer_of: Path, bits: int | None = None) -> Path:
    """Make a tiny Llama Nemotron VL with random weights.

    Args:
        bits: Bits per weight of its quantized text half; None for no quantization.
    """
    pytest.importorskip(PACKAGE)
    import mlx.core as mx
    import mlx.nn as nn
    from mlx.utils import tree_flatten
    from mlx_embeddings.models.llama_nemotron_vl import (  # type: ignore[import-untyped]
        Model,
        ModelArgs,
    )

    folder.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tokenizer_of / name, folder)
    vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    config = {**CONFIG, "llm_config": {**CONFIG["llm_config"], "vocab_size": len(vocabulary) + 8}}
    mx.random.seed(0)
    model = Model(ModelArgs.from_dict(config))
    model.update({"language_model": _scaled(model.language_model.parameters())})
    if bits is not None:
        quantization = {"group_size": 32, "bits": bits}
        nn.quantize(model.language_model, **quantization)
        config["quantization"] = quantization
    (folder / "config.json").write_text(json.dumps(config))
    weights = dict(tree_flatten(model.parameters()))
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})
    return folder


def _scaled(value: Any) -> Any:
    """Return weights scaled so that different texts have different vectors."""
    if isinstance(value, dict):
        return {name: _scaled(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_scaled(part) for part in value]
    return value * 3 if value.ndim == 2 else value


@pytest.fixture
def nemotron(tmp_path: Path, tiny_encoder: TinyEncoder) -> Path:
    return make_folder(tmp_path / "nemotron", tiny_encoder("qwen3"))


def expected_vectors(embedder: Embedder, folder: Path) -> Any:
    """Return the library's own vector of each text alone."""
    import mlx.core as mx
    from mlx_embeddings.utils import load_model  # type: ignore[import-untyped]

    model = load_model(folder)
    rows = embedder.adapter.prepare_input(embedding_request(TEXTS)).rows
    return np.stack([np.array(model(mx.array(row.tokens)[None]).text_embeds[0]) for row in rows])


def test_architectures_are_those_that_no_other_library_computes() -> None:
    pytest.importorskip(PACKAGE)
    others = models_of("mlx_vlm") | models_of("mlx_lm")
    assert models_of(PACKAGE) - others == EXTRA_ENCODERS
    assert models_of(PACKAGE) - models_of("mlx_lm") <= embedding_modules()


def test_vectors_are_the_librarys(nemotron: Path) -> None:
    record = detect(nemotron)
    assert (record.model_type, record.context) == ("embeddings", 512)
    assert record.vectors is not None
    assert record.vectors.dimensions == 64
    embedder = open_embedder(nemotron)
    together = embedder.embed(TEXTS)
    np.testing.assert_allclose(together, expected_vectors(embedder, nemotron), atol=1e-5)
    assert np.abs(together[0] - together[1]).max() > 0.01


def test_vectors_of_quantized_weights_are_those_of_texts_alone(
    nemotron: Path, tmp_path: Path, tiny_encoder: TinyEncoder
) -> None:
    quantized = open_embedder(make_folder(tmp_path / "quantized", tiny_encoder("qwen3"), bits=8))
    together = quantized.embed(TEXTS)
    np.testing.assert_allclose(together, quantized.embed_alone(TEXTS), atol=1e-4)
    whole = open_embedder(nemotron).embed(TEXTS)
    assert (whole * together).sum(axis=1).min() > 0.98


def test_without_the_package_its_models_are_a_501_that_says_how_to_install_it(
    nemotron: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, PACKAGE, None)
    with pytest.raises(ProblemError) as caught:
        open_embedder(nemotron)
    problem = caught.value.problem
    assert (problem.status, problem.code) == (501, "library_missing")
    assert problem.detail.endswith("Install it with: pip install mlx-embeddings")


EMBED_AND_RANK = """
import sys
from pathlib import Path
import structlog
structlog.configure(logger_factory=structlog.PrintLoggerFactory(file=sys.stderr))
from greenroom.engine.catalog.kind_detection import detect
from greenroom.tests.support.engines.embedders import open_embedder
from greenroom.actors.engines.engine_protocol import ModelFolder
from greenroom.actors.engines.kind_engines import open_adapter, open_engine
from greenroom.engine.resources.memory_account import MemoryAccount
from greenroom.schemas.settings.settings import Settings

for name in sys.argv[1:]:
    folder = Path(name)
    if detect(folder).model_type == "embeddings":
        print(folder.name, open_embedder(folder).embed(("the man walks", "one")).shape)
    else:
        model = ModelFolder(folder.name, folder, detect(folder))
        adapter = open_adapter(model, Settings(), "")
        arguments = (lambda fraction: None, lambda: False, MemoryAccount(None), adapter)
        open_engine(model, Settings(), *arguments).close()
        print(folder.name)
"""


@pytest.mark.deep
def test_encoders_and_rerankers_work_where_it_cannot_be_imported(tiny_encoder: TinyEncoder) -> None:
    folders = [str(tiny_encoder(kind)) for kind in (*ENCODERS, *RERANKERS)]
    printed = run_without([PACKAGE], EMBED_AND_RANK, *folders)
    assert [line.split()[0] for line in printed.splitlines()] == [*ENCODERS, *RERANKERS]


def test_one_file_of_the_product_mentions_it() -> None:
    rooms = ("actors", "engine", "http", "schemas")
    sources = [path for room in rooms for path in (ROOT / room).rglob("*.py")]
    found = [str(path.relative_to(ROOT)) for path in sources if PACKAGE in path.read_text()]
    assert found == ["engine/encoding/embedding_model.py"]
