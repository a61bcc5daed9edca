"""Conversion of the five old tables of models in the settings to one table for each model."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

OLD_TABLES = {
    "aliases": "alias",
    "tool_parsers": "tool_parser",
    "thinking_parsers": "thinking_parser",
    "system_prompts": "system_prompt",
    "vision": "vision",
}
"""Names of the tables, with the settings of a model that replace them."""


def new_lines(name: str, value: Any) -> str:
    """Return the lines of TOML that replace an old table of a settings file, in one line."""
    pairs = _pairs(name, value)
    if not pairs:
        return f'write model."org/name".{OLD_TABLES[name]} = …'
    meant: dict[str, Any] = {}
    for model, value in pairs:
        meant[model] = [*meant.get(model, ()), value] if name == "aliases" else value
    lines = (
        f"model.{_quoted(model)}.{OLD_TABLES[name]} = {_quoted(value)}" for model, value in meant.items()
    )
    return f"write {'; '.join(lines)}"


def new_entries(name: str, value: Any) -> str:
    """Return the entries of `model_settings` that replace those of an old variable or flag."""
    pairs = _pairs(name, value) or [("org/name", "…")]
    return ", ".join(f"{model}:{OLD_TABLES[name]}={meant}" for model, meant in pairs)


def _pairs(name: str, value: Any) -> list[tuple[str, Any]]:
    """Return the pairs of a model and its value that were written, as far as they are legible."""
    written: Iterable[tuple[str, Any]]
    if isinstance(value, dict):
        written = value.items()
    else:
        listed = value if isinstance(value, list | tuple) else ()
        entries = value.split(",") if isinstance(value, str) else listed
        parted = (entry.partition("=") for entry in entries if isinstance(entry, str))
        written = [(key.strip(), meant.strip()) for key, _, meant in parted if meant.strip()]
    pairs = [(key, meant) for key, meant in written if isinstance(meant, str | bool)]
    return [(str(meant), key) for key, meant in pairs] if name == "aliases" else pairs


def _quoted(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
