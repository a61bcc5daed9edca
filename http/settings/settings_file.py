"""Changes of the settings file that leave the rest as its owner wrote it."""

from __future__ import annotations

import json
import os
import re
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from greenroom.http.settings.sources import BadSettingError, settings_file

_TABLE = re.compile(r"^[ \t]*\[", re.MULTILINE)
_ENTRY = r"^[ \t]*{name}[ \t]*=[ \t]*(?:\[[^\]]*\]|\"[^\"\n]*\"|'[^'\n]*')[ \t]*(?:#[^\n]*)?\n?"


def write_settings(named: Path | None, values: Mapping[str, Sequence[str]]) -> Path:
    """Set lists of texts in the settings file, which is made if it is missing; return its path.

    Args:
        values: Values by setting; an empty list removes the setting.

    Raises:
        BadSettingError: The file cannot be changed; the message has the lines to write by hand.
    """
    path = settings_file(named)[0].expanduser().resolve()  # a link to a file elsewhere stays one
    lines = {name: f"{name} = {json.dumps([*each], ensure_ascii=False)}\n" for name, each in values.items()}
    try:
        text = path.read_text("utf-8") if path.exists() else ""
        before = tomllib.loads(text)
        changed = _changed(text, {name: lines[name] if each else "" for name, each in values.items()})
        others = {name: value for name, value in before.items() if name.replace("-", "_") not in values}
        if tomllib.loads(changed) != others | {name: [*each] for name, each in values.items() if each}:
            raise ValueError("its lines are not written one setting a line")
        _replace(path, changed)
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or problem
        by_hand = "; ".join(line.strip() for line in lines.values())
        raise BadSettingError(f"{path} cannot be changed ({reason}): write into it {by_hand}") from problem
    return path


def _changed(text: str, lines: Mapping[str, str]) -> str:
    """Return a file's text with new lines at the place of the old ones, else before everything else."""
    table = _TABLE.search(text)
    head, rest = (text[: table.start()], text[table.start() :]) if table else (text, "")
    for name, line in lines.items():
        entry = re.compile(_ENTRY.format(name=name.replace("_", "[-_]")), re.MULTILINE)
        found = entry.search(head)
        head = f"{head[: found.start()]}{line}{head[found.end() :]}" if found else line + head
    return head + rest


def _replace(path: Path, text: str) -> None:
    """Write a file whole or not at all, with the rights that it had."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(temporary, path.stat().st_mode & 0o777 if path.exists() else 0o600)
        os.replace(temporary, path)
    except OSError:
        with suppress(OSError):
            os.unlink(temporary)
        raise
