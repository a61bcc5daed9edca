"""Types and ranges of settings' values, and settings that are tables, such as `[model."org/name"]`."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

import attrs
import click

from greenroom.schemas.settings.remotes import REMOTE_NAME, Remote, Route
from greenroom.schemas.settings.setting_groups import expected, kinds_of, range_of
from greenroom.schemas.settings.settings import ModelSettings, Profile, Settings, is_pattern
from greenroom.schemas.settings.tool_servers import SERVER_NAME, ToolServer

if TYPE_CHECKING:
    ParamType = click.ParamType[Any, Any]


_UNITS = {
    **{unit: 1000**power for power, unit in enumerate(("", "K", "M", "G", "T"))},
    **{f"{unit}I": 1024**power for power, unit in enumerate(("", "K", "M", "G", "T"))},
}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?I?)B?")


class ByteSize(click.types.IntParamType):
    """A number of bytes, alone or with a unit: `8GB` is 8,000,000,000, `8GiB` is 2^33."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        written = _SIZE.fullmatch(value.strip().upper()) if isinstance(value, str) else None
        if written is not None and written[2] in _UNITS:
            return round(Decimal(written[1]) * _UNITS[written[2]])
        if isinstance(value, str):
            self.fail(f"'{value}' is not a size: give bytes, or a size such as 8GB or 512MiB.", param, ctx)
        return super().convert(value, param, ctx)


BYTE_SIZE = ByteSize()


FIELDS: dict[str, attrs.Attribute[Any]] = {
    field.name: field for field in attrs.fields(Settings) if "meaning" in field.metadata
}
_CLICK_TYPES: dict[Any, ParamType] = {int: click.INT, float: click.FLOAT, bool: click.BOOL}
_ACCEPTED: dict[ParamType, Any] = {
    click.INT: (int, str),
    BYTE_SIZE: (int, str),
    click.FLOAT: (int, float, str),
    click.BOOL: (bool, str),
}


def is_list(name: str, of: type = Settings) -> bool:
    """Return whether a setting takes several values."""
    return get_origin(kinds_of(of)[name]) is tuple


def click_type(name: str, of: type = Settings) -> ParamType:
    """Return the click type of a setting, or of each value of a list."""
    kind = kinds_of(of)[name]
    if get_origin(kind) is Literal:
        return click.Choice(get_args(kind))
    return BYTE_SIZE if kind is int and name.endswith("_bytes") else _CLICK_TYPES.get(kind, click.STRING)


def in_units(size: int) -> str:
    """Return a number of bytes in the largest unit that divides it, e.g. `1GiB`."""
    for unit in ("TiB", "GiB", "MiB", "KiB", "TB", "GB", "MB"):
        factor = _UNITS[unit.upper().removesuffix("B")]
        if size and size % factor == 0:
            return f"{size // factor}{unit}"
    return str(size)


def check_value(name: str, value: Any, of: type = Settings) -> Any:
    """Convert a setting's value to its type, and check its range. `value`: value from a TOML file, or text.
    Text of a list has commas between values. Raises ValueError: its message says what is expected.
    """
    field = attrs.fields_dict(of)[name]
    try:
        converted = _convert_list(value) if is_list(name, of) else _convert(click_type(name, of), value)
        if field.validator is not None:
            field.validator(None, field, converted)
    except (TypeError, ValueError, OverflowError, click.BadParameter) as problem:
        raise ValueError(f"must be {_expected(name, of)}") from problem
    return converted


def _convert(kind: ParamType, value: Any) -> Any:
    # Conversion alone would accept too much: 8000.5 as a port, or 1 as a host.
    accepted = isinstance(value, _ACCEPTED.get(kind, str))
    if not accepted or (isinstance(value, bool) and kind is not click.BOOL):
        raise TypeError
    return kind.convert(value, None, None)


def _convert_list(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(item.strip() for item in value.split(",") if item.strip())
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise TypeError
    return tuple(value)


def _expected(name: str, of: type) -> str:
    field = attrs.fields_dict(of)[name]
    if click_type(name, of) is not BYTE_SIZE:
        return expected(field, kinds_of(of)[name])
    values = range_of(field)
    return f"bytes, or a size such as 8GB or 512MiB{f', {values}' if values else ''}"


# Settings that are tables of tables: those of single models and MCP servers, as `[model."org/name"]`.
#
# In a variable or a flag an entry is `NAME:SETTING=VALUE`.

Tables = tuple[tuple[str, Any], ...]

TABLES: dict[str, type] = {
    name: field.metadata["table_of"] for name, field in FIELDS.items() if "table_of" in field.metadata
}
"""Names of settings that are tables of tables, with the class of the inner ones."""

IN_FILE = {"model_settings": "model"}  # Names of such settings in the settings file

FORM = "NAME:SETTING=VALUE"
_NOUNS: dict[type, str] = {
    ModelSettings: "a model",
    Profile: "a profile",
    ToolServer: "an MCP server",
    Remote: "a remote",
    Route: "a route",
}
_OF_CLIENTS = ("command", "args", "env", "url", "headers")
"""Members of a server in other clients' files that mean the same here."""
_ENTRY = re.compile(r"(.+?):([a-z][a-z_-]*)=(.*)", re.DOTALL)


class BadTableError(ValueError):
    """An invalid table; the message names the entry and says what is expected."""


def tables_of_file(setting: str, value: Any) -> Tables:
    """Return the tables that a settings file has for a setting.

    Raises:
        BadTableError: One of them is invalid.
    """
    written = IN_FILE.get(setting, setting)
    if not isinstance(value, dict) or not all(isinstance(inner, dict) for inner in value.values()):
        names = {"mcp": "files", "remotes": "studio", "routes": "smart"}
        example = f"[{written}.{names[setting]}]" if setting in names else f'[{written}."org/name"]'
        raise BadTableError(f"{written} must be tables with a name, such as {example}")
    return tuple(
        (name, _table(TABLES[setting], name, inner, f'{written}."{name}"')) for name, inner in value.items()
    )


def tables_of_entries(setting: str, entries: str | Iterable[str]) -> Tables:
    """Return the tables of a variable's or of flags' entries. `entries`: entries, each `NAME:SETTING=VALUE`;
    a single text has commas between them. Raises BadTableError: one of them is invalid.
    """
    listed = entries.split(",") if isinstance(entries, str) else entries
    tables: list[tuple[str, Any]] = []
    for entry in (text.strip() for text in listed if text.strip()):
        parts = _ENTRY.fullmatch(entry)
        if parts is None:
            raise BadTableError(f"{entry!r} must be {FORM}, such as org/name:{_example(setting)}")
        tables.append((parts[1], _table(TABLES[setting], parts[1], {parts[2]: parts[3]}, parts[1])))
    return tuple(tables)


def servers_of_client(path: Path) -> Tables:
    """Return the MCP servers in the file of another client; what is not about starting them is left out.
    Raises BadTableError: it cannot be read, or a server is invalid.
    """
    try:
        found = json.loads(path.read_text("utf-8"))
        servers = found.get("mcpServers", found.get("servers"))  # the latter is VS Code's
        usable = {
            name: {key: value for key, value in server.items() if key in _OF_CLIENTS}
            for name, server in servers.items()
            if not server.get("disabled")
        }
    except (OSError, ValueError, AttributeError) as problem:
        why = getattr(problem, "strerror", None) or "it must be JSON with an object `mcpServers` of objects"
        raise BadTableError(f"mcp_config = {str(path)!r}: {why}") from problem
    return tuple(
        (re.sub(r"[^A-Za-z0-9_-]", "_", name), _table(ToolServer, name, server, f"{path}: {name}"))
        for name, server in usable.items()
    )


def _example(setting: str) -> str:
    examples = {
        "model_settings": "kv_bits=8",
        "profiles": "model=org/other",
        "mcp": "url=https://mcp.example",
        "remotes": "url=http://studio.local:8000",
        "routes": "models=org/name",
    }
    return examples[setting]


def _table(kind: type, name: str, table: Mapping[str, Any], place: str) -> Any:
    """Return the instance of a class for one table."""
    known = attrs.fields_dict(kind)
    values = _flattened(table, known)
    for setting, value in values.items():
        if setting not in known:
            near = difflib.get_close_matches(setting, known, n=1)
            hint = f" (did you mean '{near[0]}'?)" if near else ""
            raise BadTableError(f"{place}: there is no setting '{setting}' of {_NOUNS[kind]}{hint}")
        try:
            values[setting] = check_value(setting, _listed(setting, value, kind), kind)
        except ValueError as problem:
            shown = "" if known[setting].metadata["secret"] else f" = {value!r}"
            raise BadTableError(f"{place}: {setting}{shown}: {problem}") from problem
    if kind is Profile and is_pattern(name):
        raise BadTableError(f"{place}: a profile has one name, without `*`")
    if kind is ModelSettings:
        _check_name(name, values, place)
    if kind is ToolServer and place.startswith("mcp.") and not SERVER_NAME.fullmatch(name):
        raise BadTableError(f"{place}: a server's name has letters, digits, `-` and `_`, at most 64")
    if kind is Remote and not REMOTE_NAME.fullmatch(name):
        raise BadTableError(f"{place}: a remote's name has letters, digits, `-`, `_` and `.`, at most 64")
    if kind is Route and is_pattern(name):
        raise BadTableError(f"{place}: a route has one name, without `*`")
    try:
        return kind(**values)
    except ValueError as problem:
        raise BadTableError(f"{place}: {problem}") from problem


def _check_name(name: str, values: Mapping[str, Any], place: str) -> None:
    """Refuse aliases in a pattern's table, and all but aliases in that of `default`, which is no model."""
    if values.get("alias") and is_pattern(name):
        raise BadTableError(f"{place}: an alias needs one model, and this name is a pattern")
    if name == "default" and (others := values.keys() - {"alias"}):
        raise BadTableError(f"{place}: {min(others)} needs the model's own name; `default` can have an alias")


def _listed(setting: str, value: Any, kind: type) -> Any:
    if isinstance(value, dict) and is_list(setting, kind) and all(isinstance(v, str) for v in value.values()):
        return [f"{name}={text}" for name, text in value.items()]
    return [value] if isinstance(value, str) and is_list(setting, kind) else value


def _flattened(table: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table with groups flattened: `images.max_count` becomes `images_max_count`."""
    values: dict[str, Any] = {}
    for name, value in table.items():
        plain = name.replace("-", "_")
        if isinstance(value, dict) and any(field.startswith(f"{plain}_") for field in known):
            values |= {f"{plain}_{inner.replace('-', '_')}": entry for inner, entry in value.items()}
        else:
            values[plain] = value
    return values
