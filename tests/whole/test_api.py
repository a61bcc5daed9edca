"""`greenroom.api`: the names that programs import."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from greenroom import api
from greenroom.schemas.protocols.pool_protocol import PoolMessage

ROOT = Path(__file__).resolve().parents[2]
HEAVY = {
    "mlx",
    "mlx_lm",
    "mlx_vlm",
    "mlx_audio",
    "transformers",
    "numpy",
    "opentelemetry",
    "quart",
    "hypercorn",
    "sqlite_utils",
    "mcp",
}


def test_every_name_is_there_and_stands_on_the_page() -> None:
    page = (ROOT / "notes" / "embed.md").read_text(encoding="utf-8")
    named = {name for code in re.findall(r"`([^`\n]+)`", page) for name in re.findall(r"\w+", code)}
    for name in api.__all__:
        assert getattr(api, name) is not None
        assert name in named, name
    with pytest.raises(AttributeError, match="no attribute 'open_systems'"):
        api.open_systems  # type: ignore[attr-defined]  # noqa: B018


def test_the_page_of_actors_has_a_row_for_every_message_of_the_pool() -> None:
    table = (ROOT / "notes" / "actors.md").read_text(encoding="utf-8").partition("### The pool's messages")[2]
    rows = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    assert sorted(rows) == sorted(message.__name__ for message in get_args(PoolMessage))


def test_importing_it_loads_neither_model_libraries_nor_http() -> None:
    code = (
        "import sys; from greenroom.api import chat, open_system\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    imported = set(done.stdout.split())
    assert "trio" in imported
    assert not HEAVY & imported
