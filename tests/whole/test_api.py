"""`greenroom.api`: the names that programs import."""

from __future__ import annotations

import re
import subprocess
import sys
import wave
from pathlib import Path
from textwrap import indent
from typing import Any, get_args

import pytest
import trio

from greenroom import api
from greenroom.api import Settings, open_system
from greenroom.schemas.protocols.pool_protocol import PoolMessage
from greenroom.tests.support.media.audio_files import wav_file
from greenroom.tests.support.reference.reference_tables import examples
from greenroom.tests.support.spoiled.spoiled_kinds import MAKERS

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


EXAMPLES = {
    "ChatInput": (None, " stop "),
    "EmbeddingInput": ("embeds", "\n1 ["),
    "ScoreInput": ("ranks", " The cat sleeps."),
    "SpeechInput": ("speaks", ""),
    "TranscriptionInput": ("hears", "0.0 to 2.0 s:  hello from the tiny whisper."),
    "run_conversation": (None, "Rain in Paris"),
}
"""The tiny model of each example in a docstring, None for the demo model, and a part of its output."""


@pytest.mark.parametrize("name", examples())
def test_the_example_of_each_kind_answers_in_twelve_lines(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, (kind, printed) = examples()[name], EXAMPLES[name]
    assert len([line for line in code.splitlines() if line.strip()]) <= 12
    monkeypatch.chdir(tmp_path)
    if kind is not None:
        Path(kind).mkdir()
        MAKERS[kind](Path(kind))
    Path("talk.wav").write_bytes(wav_file(2.0, 16_000))
    names: dict[str, Any] = {name: getattr(api, name) for name in api.__all__}
    exec(f"async def example(system):\n{indent(code, '    ')}", names)
    settings = Settings(models=() if kind is None else (kind,), shutdown_timeout=60.0)

    async def run() -> None:
        with trio.fail_after(300):
            async with open_system(settings) as system:
                await names["example"](system)

    trio.run(run)
    assert printed in capsys.readouterr().out
    if name == "SpeechInput":
        with wave.open("hello.wav") as spoken:
            assert spoken.getnframes() > spoken.getframerate() // 2


def test_every_name_is_there() -> None:
    assert examples().keys() == EXAMPLES.keys()
    assert None not in [getattr(api, name) for name in api.__all__]
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
