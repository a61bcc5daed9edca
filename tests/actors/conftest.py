"""Fixtures that make real tiny models for systems under test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from greenroom.schemas.settings.settings import Settings


@pytest.fixture
def models(tiny_model: Callable[..., Path]) -> tuple[str, ...]:
    return tuple(str(tiny_model(kind)) for kind in ("qwen3", "llama", "mistral"))


@pytest.fixture
def settings(models: tuple[str, ...]) -> Settings:
    return Settings(models=models[:2], max_batch=4, shutdown_timeout=60.0)
