"""Fields of settings: default, range, permitted values and meaning."""

from __future__ import annotations

from typing import Any

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
    among = attrs.validators.in_(one_of if default is not None else (None, *one_of))
    numbers = tuple(value for value in one_of if isinstance(value, int))
    ends = {"low": low, "high": high, "above": above, "one_of": numbers}
    return attrs.field(
        default=default,
        validator=among if one_of else _check_range,
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
    return attrs.field(default=(), metadata={**ends, "meaning": meaning, "table_of": kind})


def own(group: type, name: str, meaning: str | None = None) -> Any:
    """Return the attrs field of one model's value for a server's setting, absent by default.

    Args:
        group: Class with the server's setting.
        name: Name of the setting.
        meaning: Help text, if it differs.
    """
    server = attrs.fields_dict(group)[name]
    allowed = attrs.validators.optional(server.validator) if server.validator is not None else None
    return attrs.field(
        default=None,
        validator=allowed,
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


def _check_range(_instance: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    """Reject a value out of range: `low` and `high` are inclusive bounds, `above` is exclusive; NaN fails."""
    if value is None:
        return
    low, high, above = (attribute.metadata[end] for end in ("low", "high", "above"))
    if not (
        (low is None or value >= low) and (above is None or value > above) and (high is None or value <= high)
    ):
        raise ValueError(f"must be {range_of(attribute)}")


def _in_digits(number: float) -> str:
    return f"{number:,}" if number >= 1e6 else f"{number:g}"
