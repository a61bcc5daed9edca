"""Fixtures with a real tiny model behind the server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from greenroom.schemas.settings.settings import Settings


@pytest.fixture
def settings(tiny_model: Callable[..., Path]) -> Settings:
    return Settings(models=(str(tiny_model("qwen3")),), shutdown_timeout=60.0)
