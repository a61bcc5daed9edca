"""Fixtures with two real tiny models behind the server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from greenroom.schemas.settings.settings import Settings


@pytest.fixture
def settings(tiny_model: Callable[..., Path]) -> Settings:
    return Settings(models=(str(tiny_model("qwen3")), str(tiny_model("llama"))), shutdown_timeout=60.0)
