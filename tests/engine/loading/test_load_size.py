"""Sizes of loads, computed before them, against what loading tiny models of each kind takes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from greenroom.actors.engines.engine_protocol import ModelFolder
from greenroom.actors.engines.kind_engines import open_adapter, open_engine
from greenroom.engine.catalog.kind_detection import detect
from greenroom.engine.kv_cache.size_model import CacheSizeModel
from greenroom.engine.loading.libraries import import_text_libraries
from greenroom.engine.loading.load_model import load_model
from greenroom.engine.loading.load_size import FIRST_TOKENS, load_size, practical_context
from greenroom.engine.resources.memory_account import MemoryAccount
from greenroom.schemas.settings.setting_groups import MEGABYTE, Dtype
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.models.tiny_models import TinyModel

KINDS = (
    "text:qwen3",
    "vision:qwen2_5_vl",
    "embeddings:bert",
    "embeddings:qwen3",
    "rerank:bert-rerank",
    "speech:pocket",
    "transcription:whisper",
)


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [*((kind, "auto") for kind in KINDS), ("transcription:whisper", "float16"), ("text:qwen3", "bfloat16")],
)
def test_the_weights_of_a_load_are_known_before_it(
    kind: str, dtype: Dtype, folder_of: Callable[[str], Path]
) -> None:
    folder, settings, account = folder_of(kind), Settings(dtype=dtype), MemoryAccount(limit=1 << 40)
    model = ModelFolder(folder.name, folder, detect(folder))
    assert model.record.model_type == kind.partition(":")[0]
    known = load_size(folder, model.record, settings)
    adapter = open_adapter(model, settings, "")
    engine = open_engine(model, settings, lambda fraction: None, lambda: False, account, adapter)
    try:
        assert account.statistics().weights == pytest.approx(known.weights, rel=0.03)
    finally:
        engine.close()
    assert (known.cache > 0) is (model.record.model_type in ("text", "vision"))
    assert known.total == known.weights + known.working + known.cache


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        *((kind, "auto") for kind in ("gemma3", "ministral", "lfm2", "deepseek", "qwen3_next", "gpt_oss")),
        ("qwen3", "float16"),
        ("youtu_llm", "auto"),
    ],
)
def test_the_cache_of_the_first_tokens_is_known_before_the_load(
    kind: str, dtype: Dtype, tiny_model: Callable[..., Path]
) -> None:
    import_text_libraries()
    changes = {"model_type": kind} if kind == "youtu_llm" else {}
    folder = tiny_model("deepseek" if changes else kind, **changes)
    settings, charged = Settings(dtype=dtype), list[int]()
    known = load_size(folder, detect(folder), settings)
    model = load_model(folder, settings, reserve_memory=charged.append)
    assert sum(charged) == pytest.approx(known.weights, rel=0.03)
    cache = CacheSizeModel.of(model).nbytes(1, FIRST_TOKENS)
    assert cache == pytest.approx(known.cache, rel=0.1)


def test_a_draft_model_and_the_operators_limits_count(tiny_model: Callable[..., Path]) -> None:
    folder, draft = tiny_model("qwen3"), tiny_model("llama")
    record = detect(folder)
    alone, beside = load_size(folder, record, Settings()), load_size(draft, detect(draft), Settings())
    both = load_size(folder, record, Settings(), draft)
    assert (both.weights, both.cache) == (alone.weights + beside.weights, alone.cache + beside.cache)
    assert load_size(folder, record, Settings(kv_cache_bytes=MEGABYTE)).cache == MEGABYTE
    short = load_size(folder, attrs.evolve(record, context=FIRST_TOKENS // 2), Settings())
    assert short.cache == alone.cache // 2


@pytest.mark.parametrize("kind", ["mamba", "rwkv7", "nemotron_h", "recurrent_gemma"])
def test_layers_without_attention_need_no_cache_of_tokens(kind: str, tiny_model: Callable[..., Path]) -> None:
    import_text_libraries()
    folder = tiny_model(kind)
    cache = CacheSizeModel.of(load_model(folder, Settings())).nbytes(1, FIRST_TOKENS)
    assert load_size(folder, detect(folder), Settings()).cache <= 2 * cache


def test_a_configuration_of_sizes_that_no_weight_has_is_not_counted(
    tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    made = tiny_model("qwen3")
    folder = Path(shutil.copytree(made, tmp_path / "model"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 1 << 30}))
    with pytest.raises(ValueError, match="num_hidden_layers = 1,073,741,824"):
        load_size(folder, detect(folder), Settings())


def test_only_layers_that_exist_have_a_cache(tiny_model: Callable[..., Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny_model("qwen3"), tmp_path / "model"))
    config = json.loads((folder / "config.json").read_text())
    before = load_size(folder, detect(folder), Settings()).cache
    layers = {"layer_types": ["full_attention"] * 100_000}
    (folder / "config.json").write_text(json.dumps({**config, **layers}))
    assert load_size(folder, detect(folder), Settings()).cache == before


def test_a_broken_weight_file_has_no_size(tiny_model: Callable[..., Path], tmp_path: Path) -> None:
    folder = tiny_model("qwen3")
    (tmp_path / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:-5])
    with pytest.raises(ValueError, match="no whole safetensors file"):
        load_size(tmp_path, detect(folder), Settings())


@pytest.mark.parametrize("kind", ["qwen3", "gemma3"])
@pytest.mark.parametrize("tokens", [1, 100, 5_000])
def test_one_byte_less_is_one_token_less(tiny_model: TinyModel, kind: str, tokens: int) -> None:
    folder, settings = tiny_model(kind), Settings()
    record = detect(folder)
    limit = load_size(folder, record, settings, tokens=tokens).total
    assert practical_context(folder, record, settings, limit) == tokens
    assert practical_context(folder, record, settings, limit - 1) == tokens - 1


def test_it_is_bounded_by_the_model_the_settings_and_what_is_known(tiny_model: TinyModel) -> None:
    folder, settings = tiny_model("qwen3"), Settings()
    record = detect(folder)
    assert practical_context(folder, record, settings, 1 << 40) == record.context == 32_768
    assert practical_context(folder, record, Settings(max_context=64), 1 << 40) == 64
    assert practical_context(folder, record, settings, None) is None
    cache = load_size(folder, record, settings, tokens=500).cache
    bounded = attrs.evolve(settings, kv_cache_bytes=1 << 20)
    assert practical_context(folder, record, bounded, 1 << 40) == (1 << 20) * 500 // cache
