"""The practical context is the longest whose cache fits into memory beside the weights."""

from __future__ import annotations

import attrs
import pytest

from greenroom.engine.catalog.kinds import detect
from greenroom.engine.loading.load_size import load_size, practical_context
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.models.tiny_models import TinyModel


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
