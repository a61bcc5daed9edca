"""The voices that lie beside a model that speaks."""

from __future__ import annotations

from pathlib import Path

_FOLDERS = ("voices", "embeddings")
_DEFAULT_FILE = "default-voice.safetensors"


def list_voices(folder: Path) -> tuple[str, ...]:
    """Return the names of a model's voices, one for each file; empty if it has no such files."""
    found = {path.stem for name in _FOLDERS for path in (folder / name).glob("*.safetensors")}
    if (folder / _DEFAULT_FILE).is_file():
        found.add("default")
    return tuple(sorted(found))
