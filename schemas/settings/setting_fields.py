"""Fields of settings: default, range, permitted values and meaning."""

from __future__ import annotations

import functools
import types
from typing import Any, Literal, Union, get_args, get_origin

import attrs

from greenroom.schemas.messages.generation import GenerationParameters

MEGABYTE = 1024 * 1024


def setting(
    default: Any,
    meaning: str,
    *,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    one_of: tuple[str | int, ...] = (),
    secret: bool = False,
) -> Any:
    """Return the attrs field of a setting.

    Args:
        default: Value if no source sets it; None if the setting may be absent.
        meaning: Help text.
        low: Minimum value.
        high: Greatest value.
        above: Value that must be exceeded.
        one_of: Permitted values; empty for any.
        secret: True if its value is shown to nobody.
    """
    numbers = tuple(value for value in one_of if isinstance(value, int))
    ends = {"low": low, "high": high, "above": above, "one_of": numbers}
    return attrs.field(
        default=default,
        validator=_check,
        metadata={**ends, "meaning": meaning, "secret": secret},
    )


def generation_default(name: str, meaning: str) -> Any:
    """Return the attrs field of a setting that gives a generation parameter where a request has none.

    Its range is that of the parameter.

    Args:
        name: Name of the parameter.
        meaning: Help text.
    """
    bounds = attrs.fields_dict(GenerationParameters)[name].metadata
    return setting(None, meaning, low=bounds.get("low"), high=bounds.get("high"), above=bounds.get("above"))


def setting_table(kind: type, meaning: str) -> Any:
    """Return the attrs field of a setting that is a table of tables, each an instance of `kind`."""
    ends = {"low": None, "high": None, "above": None, "one_of": ()}
    metadata = {**ends, "meaning": meaning, "table_of": kind, "secret": False}
    return attrs.field(default=(), validator=_check, metadata=metadata)


def own(group: type, name: str, meaning: str | None = None) -> Any:
    """Return the attrs field of one model's value for a server's setting, absent by default.

    Args:
        group: Class with the server's setting.
        name: Name of the setting.
        meaning: Help text, if it differs.
    """
    server = attrs.fields_dict(group)[name]
    return attrs.field(
        default=None,
        validator=_check,
        metadata={**server.metadata, "meaning": meaning or server.metadata["meaning"]},
    )


def range_of(attribute: attrs.Attribute[Any]) -> str:
    """Return a description of a numeric setting's range; empty if it is unlimited."""
    low, high, above = (attribute.metadata[end] for end in ("low", "high", "above"))
    if numbers := attribute.metadata["one_of"]:
        return " or ".join(map(str, numbers))
    if low is not None and high is not None:
        return f"{_in_digits(low)} to {_in_digits(high)}"
    ends = ((above, "above"), (low, "at least"), (high, "at most"))
    return " and ".join(f"{words} {_in_digits(end)}" for end, words in ends if end is not None)


@functools.cache
def kinds_of(group: type) -> dict[str, Any]:
    """Return the types of a class's settings, without None."""
    return {field.name: _without_none(field.type) for field in attrs.fields(attrs.resolve_types(group))}


def expected(attribute: attrs.Attribute[Any], kind: Any) -> str:
    """Return a description of a setting's values.

    Args:
        kind: Its type.
    """
    if table := attribute.metadata.get("table_of"):
        return f"pairs of a name and a {table.__name__}"
    if get_origin(kind) is tuple:
        return "a list of strings"
    if get_origin(kind) is Literal:
        return f"one of {', '.join(get_args(kind))}"
    words, values = _WORDS.get(kind, "a string"), range_of(attribute)
    return f"{words}, {values}" if values else words


_WORDS: dict[Any, str] = {int: "a whole number", float: "a number", bool: "true or false"}


def _check(instance: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    """Reject a value of another type, or out of range.

    Args:
        instance: Settings with the value; None for a value that is converted already.
    """
    if value is None and attribute.default is None:
        return
    group: type | None = None if instance is None else instance.__class__
    kind = None if group is None else kinds_of(group)[attribute.name]
    if (instance is not None and not _fits(kind, value)) or not _is_in_range(attribute, value):
        shown = "" if attribute.metadata["secret"] else f" = {value!r}"
        raise ValueError(f"{attribute.name}{shown}: must be {expected(attribute, kind)}")


def _fits(kind: Any, value: Any) -> bool:
    """Return whether a value is of a type."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is tuple and inner[-1] is ...:
        return isinstance(value, tuple | list) and all(_fits(inner[0], each) for each in value)
    if origin is tuple:
        return isinstance(value, tuple) and len(value) == len(inner) and all(map(_fits, inner, value))
    if origin is Literal:
        return value in inner
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, int | float if kind is float else kind)


def _is_in_range(attribute: attrs.Attribute[Any], value: Any) -> bool:
    """Return whether a value is in range; `above` alone is exclusive, and NaN is in none."""
    low, high, above = (attribute.metadata[end] for end in ("low", "high", "above"))
    among = attribute.metadata["one_of"]
    return (
        (not among or value in among)
        and (low is None or value >= low)
        and (above is None or value > above)
        and (high is None or value <= high)
    )


def _without_none(kind: Any) -> Any:
    if get_origin(kind) in (Union, types.UnionType):
        return next(part for part in get_args(kind) if part is not types.NoneType)
    return kind


def _in_digits(number: float) -> str:
    return f"{number:,}" if number >= 1e6 else f"{number:g}"
