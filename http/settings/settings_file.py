"""Changes of the settings file that leave the rest as its owner wrote it, and its reload."""

from __future__ import annotations

import json
import os
import re
import tempfile
import tomllib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import attrs
import click
import trio

from greenroom.http.settings.sources import BadSettingError, settings_file
from greenroom.schemas.logs import get_logger
from greenroom.schemas.problems import Problem, ProblemError
from greenroom.schemas.settings.settings import Settings, compare
from greenroom.schemas.wire.admin import Reloaded

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


log = get_logger(actor="http")


class Reloader:
    """Reads the settings again and applies the changes, one reload at a time.

    Args:
        read: Function that reads and checks the settings on a thread; raises ClickException.
        reload_models: Function that applies the changed settings of models; returns the models whose files
            are read again.
    """

    def __init__(
        self,
        settings: Settings,
        read: Callable[[], Settings],
        reload_models: Callable[[Settings], Awaitable[tuple[str, ...]]],
    ) -> None:
        self._settings = settings
        self._read = read
        self._reload_models = reload_models
        self._takers: list[Callable[[Settings], None]] = []
        self._turn = trio.Lock()

    @property
    def settings(self) -> Settings:
        return self._settings

    def tell(self, taker: Callable[[Settings], None]) -> None:
        """Call `taker` with the settings after each change."""
        self._takers.append(taker)

    async def reload(self) -> Reloaded:
        """Read and apply changed settings; nothing changes if one of them is wrong. Raises ProblemError: 400
        `bad_setting`, with the name of the setting.
        """
        async with self._turn:
            try:
                read = await trio.to_thread.run_sync(self._read)
            except (click.ClickException, OSError, ValueError, RuntimeError) as error:
                reason = error.format_message() if isinstance(error, click.ClickException) else str(error)
                log.error("settings not reloaded", reason=reason)
                raise ProblemError(Problem(400, "bad_setting", f"Nothing has changed: {reason}.")) from error
            change = compare(self._settings, read)
            reopened = await self._reload_models(change.settings) if change.applied else ()
            self._settings = change.settings
            for taker in self._takers:
                taker(change.settings)
        reloaded = Reloaded(change.applied, change.needs_restart, reopened)
        log.info("settings reloaded", **attrs.asdict(reloaded, value_serializer=_listed))
        return reloaded


def _listed(_instance: object, _field: object, value: object) -> object:
    return list(value) if isinstance(value, tuple) else value
