"""Types and ranges of settings' values."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

import attrs
import click

from greenroom.schemas.settings.setting_fields import expected, kinds_of, range_of
from greenroom.schemas.settings.settings import Settings

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
    """Return whether a setting takes several values.

    Args:
        of: Class of the setting.
    """
    return get_origin(kinds_of(of)[name]) is tuple


def click_type(name: str, of: type = Settings) -> ParamType:
    """Return the click type of a setting, or of each value of a list.

    Args:
        of: Class of the setting.
    """
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
    """Convert a setting's value to its type, and check its range.

    Args:
        value: Value from a TOML file, or text. Text of a list has commas between values.
        of: Class of the setting.

    Raises:
        ValueError: Its message says what is expected.
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
