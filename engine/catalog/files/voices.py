"""Voice files of a speech model."""

from __future__ import annotations

from pathlib import Path

_FOLDERS = ("voices", "embeddings")
_DEFAULT_FILE = "default-voice.safetensors"


def list_voices(folder: Path) -> tuple[str, ...]:
    """Return the names of a model's voice files; empty if there are none."""
    found = {path.stem for name in _FOLDERS for path in (folder / name).glob("*.safetensors")}
    if (folder / _DEFAULT_FILE).is_file():
        found.add("default")
    return tuple(sorted(found))
