"""Rerankers for the tests of this folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from greenroom.tests.support.engines.rerankers import MakeReranker, Reranker


@pytest.fixture
def reranker(tiny_encoder: Callable[..., Path]) -> MakeReranker:
    """Return a function from a kind and changed settings to an opened reranker."""

    def opened(kind: str, **changes: Any) -> Reranker:
        return Reranker(tiny_encoder(kind, **changes))

    return opened
