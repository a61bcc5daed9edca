"""Settings from a TOML file, `GREENROOM_*` variables and command-line flags; later ones win.

Flags are made from the defaults alone; file and environment are read when the command is invoked, so that
a bad file never breaks `--help`.
"""

from __future__ import annotations

import difflib
import functools
import json
import os
import re
import tempfile
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar

import attrs
import click
from click.core import ParameterSource

from greenroom.http.process.exit_status import ExitStatus
from greenroom.http.settings.check_value import (
    BYTE_SIZE,
    FIELDS,
    FORM,
    IN_FILE,
    TABLES,
    BadTableError,
    Tables,
    check_value,
    click_type,
    in_units,
    is_list,
    servers_of_client,
    tables_of_entries,
    tables_of_file,
)
from greenroom.schemas.settings.setting_groups import range_of
from greenroom.schemas.settings.settings import GROUPS, Settings, Source

PREFIX = "GREENROOM_"
CONFIG_VARIABLE = f"{PREFIX}CONFIG"
KEY_VARIABLE = f"{PREFIX}API_KEY"
"""Environment variable with the key that commands send, which is no setting of the server."""
SERVER_KEY_VARIABLE = f"{PREFIX}SERVER_API_KEY"

F = TypeVar("F", bound=Callable[..., Any])


class BadSettingError(click.ClickException):
    """An invalid setting; the message is one line that names where it was set."""

    exit_code = ExitStatus.BAD_SETTING


def environment_key(*names: str) -> str:
    """Return the API key that commands send, or that of further variables; empty without one. Raises
    ClickException: it is no key.
    """
    for name in (KEY_VARIABLE, *names):
        if key := os.environ.get(name, "").strip():
            if not (key.isascii() and key.isprintable()):
                raise click.ClickException(f"{name} is no key: it must be printable ASCII")
            return key
    return ""


def settings_options(*names: str) -> Callable[[F], Callable[..., Any]]:
    """Return a decorator that gives a command flags for the settings `names` and an argument `settings`.

    The file and the environment can set every setting, also those without a flag.
    """

    def decorate(command: F) -> Callable[..., Any]:
        @functools.wraps(command)
        def with_settings(*arguments: Any, config: Path | None, **parameters: Any) -> Any:
            flags = {name: parameters.pop(name) for name in names}
            given = {name: value for name, value in flags.items() if value is not None}
            return command(*arguments, settings=read_settings(config, given), **parameters)

        decorated: Callable[..., Any] = with_settings
        for name in reversed(names):
            decorated = _flag(name)(decorated)
        return click.option(
            "--config",
            type=click.Path(dir_okay=False, path_type=Path),
            help=f"TOML file with settings [variable: {CONFIG_VARIABLE}; default: {default_file()}].",
        )(decorated)

    return decorate


def default_file() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(base, "greenroom", "settings.toml")


def read_settings(file: Path | None, flags: Mapping[str, Any]) -> Settings:
    """Return the settings of all sources: flags override variables, then the file, then the defaults.

    Tables of single models are put together, so that a flag replaces one entry and not all tables.

    Args:
        file: Settings file, which must exist; if None, `GREENROOM_CONFIG` or the default file is read, and
            only the latter may be missing.

    Raises:
        BadSettingError: A source cannot be read, or has an unknown setting or an invalid value.
    """
    of_file, of_environment = _from_file(file), _from_environment()
    tables: dict[str, Tables] = {
        name: tuple(pair for source in (flags, of_environment, of_file) for pair in source.get(name, ()))
        for name in TABLES
    }
    sources: tuple[tuple[Mapping[str, Any], Source], ...] = (
        (of_file, "file"),
        (of_environment, "environment"),
        (flags, "flag"),
    )
    origins = {name: source for values, source in sources for name in values}
    values = {**of_file, **of_environment, **flags, **tables}
    try:
        if (client_file := values.get("mcp_config")) is not None:
            values["mcp"] += servers_of_client(Path(client_file).expanduser())
        settings = Settings(**values, origins=tuple(origins.items()))
        # These refuse a server without a program and an address, and a remote without an address.
        _ = settings.tool_servers, settings.remote_servers
    except ValueError as problem:
        raise BadSettingError(str(problem)) from problem
    return settings


def settings_file(named: Path | None) -> tuple[Path, bool]:
    """Return the path of the settings file, and whether it must exist: a flag or a variable names it."""
    known = named or os.environ.get(CONFIG_VARIABLE)
    return (Path(known), True) if known else (default_file().expanduser(), False)


def _from_file(file: Path | None) -> dict[str, Any]:
    path, must_exist = settings_file(file)
    if not must_exist and not path.is_file():
        return {}
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as problem:
        raise BadSettingError(f"{path}: {getattr(problem, 'strerror', None) or problem}") from problem
    values = _without_groups({_own_name(name.replace("-", "_")): value for name, value in table.items()})
    if unknown := [name for name in values if name not in FIELDS]:
        raise BadSettingError(f"{path}: {'; '.join(map(_describe_unknown, unknown))}")
    return {name: _of_file(path, name, value) for name, value in values.items()}


def _own_name(name: str) -> str:
    return next((own for own, written in IN_FILE.items() if written == name), name)


def _of_file(path: Path, name: str, value: Any) -> Any:
    if name not in TABLES:
        return _checked(f"{path}: {name}", name, value)
    try:
        return tables_of_file(name, value)
    except BadTableError as problem:
        raise BadSettingError(f"{path}: {problem}") from problem


def _without_groups(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table with groups flattened: `[store] responses` becomes `store_responses`."""
    values: dict[str, Any] = {}
    for name, value in table.items():
        grouped = isinstance(value, dict) and name not in TABLES
        if grouped and any(field.startswith(f"{name}_") for field in FIELDS):
            values |= {f"{name}_{inner.replace('-', '_')}": entry for inner, entry in value.items()}
        else:
            values[name] = value
    return values


def _from_environment() -> dict[str, Any]:
    variables = {name: f"{PREFIX}{name.upper()}" for name in FIELDS} | {"api_key": SERVER_KEY_VARIABLE}
    found = {name: variable for name, variable in variables.items() if variable in os.environ}
    return {name: _of_variable(variable, name, os.environ[variable]) for name, variable in found.items()}


def _of_variable(variable: str, name: str, value: str) -> Any:
    if name not in TABLES:
        return _checked(variable, name, value)
    try:
        return tables_of_entries(name, value)
    except BadTableError as problem:
        raise BadSettingError(f"{variable}: {problem}") from problem


def _checked(place: str, name: str, value: Any) -> Any:
    try:
        return check_value(name, value)
    except ValueError as problem:
        shown = "" if FIELDS[name].metadata["secret"] else f" = {value!r}"
        raise BadSettingError(f"{place}{shown}: {problem}") from problem


def _describe_unknown(name: str) -> str:
    near = difflib.get_close_matches(name, FIELDS, n=1)
    return f"there is no setting '{name}'" + (f" (did you mean '{near[0]}'?)" if near else "")


def _flag(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the option of one setting; its value is None unless given on the command line."""
    if name in TABLES:
        return _table_flag(name)
    field, kind = FIELDS[name], click_type(name)

    def check(context: click.Context, option: click.Parameter, value: Any) -> Any:
        if context.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
            return None
        try:
            return check_value(name, value)
        except ValueError as problem:
            raise click.BadParameter(str(problem), context, option) from problem

    flag, values = f"--{name.replace('_', '-')}", range_of(field)
    return click.option(
        f"{flag}/--no-{flag[2:]}" if kind is click.BOOL else flag,
        type=kind,
        multiple=is_list(name),
        default=in_units(field.default) if kind is BYTE_SIZE and field.default is not None else field.default,
        show_default=field.default not in (None, ()),
        help=field.metadata["meaning"] + (f" [{values}]" if values else ""),
        callback=check,
    )


def _table_flag(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the option of a setting that is a table of tables."""

    def check(context: click.Context, option: click.Parameter, value: tuple[str, ...]) -> Tables | None:
        try:
            return tables_of_entries(name, value) or None
        except BadTableError as problem:
            raise click.BadParameter(str(problem), context, option) from problem

    meaning, flag = FIELDS[name].metadata["meaning"], f"--{name.replace('_', '-')}"
    return click.option(flag, multiple=True, metavar=FORM, help=meaning, callback=check)


class GroupedCommand(click.Command):
    """A command whose help lists options by group; options that are not settings come last."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        records = {
            param.name: record
            for param in self.get_params(ctx)
            if (record := param.get_help_record(ctx)) is not None
        }
        for title, classes in GROUPS.items():
            names = [field.name for group in classes for field in attrs.fields(group)]
            if found := [records.pop(name) for name in names if name in records]:
                with formatter.section(title):
                    formatter.write_dl(found)
        with formatter.section("Other options"):
            formatter.write_dl([*records.values()])


class KnownModels(Protocol):
    """Questions about this machine's models and devices."""

    def has_gpu(self) -> bool:
        """Return whether MLX finds a GPU. This imports MLX, so it is called only if a GPU is required."""

    def can_compute(self) -> bool:
        """Return whether MLX is installed with a backend."""

    def is_missing(self, model: str) -> bool:
        """Return whether the name of a model is a path to a folder that does not exist."""

    def why_no_model(self, model: str) -> str | None:
        """Return an error message if the name of a model is a path to a folder without a model."""

    def find_unknown(self, settings: Settings, names: Collection[str]) -> set[str]:
        """Return the names that match no model; this reads the disk."""

    def why_pins_do_not_fit(self, settings: Settings) -> str | None:
        """Return an error message if the pinned models exceed the memory together."""

    def find_conflict(self, settings: Settings) -> str | None:
        """Return a sentence about two things of one name, if there are any."""

    def find_bad_file(self, settings: Settings) -> str | None:
        """Return an error message about an unusable file of the settings, if there is one."""


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
