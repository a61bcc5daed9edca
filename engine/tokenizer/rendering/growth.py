"""Sizes of what operators and methods make, told before they make it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from string import Formatter
from typing import Any

from greenroom.engine.tokenizer.rendering.budget import LARGEST_NUMBER, current

ENDLESS = 1 << 60
"""Size of what is refused whatever is left."""

WRONG_ARGUMENTS = (TypeError, ValueError, OverflowError, AttributeError)
"""Errors of an estimate that was given what no method or filter takes."""

_SPECIFIER = re.compile(r"%(?:\([^)]*\))?[#0\- +]*(\*|\d*)(?:\.(\*|\d*))?")
_QUICK_CODECS = frozenset({"utf8", "ascii", "latin1", "iso88591", "utf16", "utf32"})
_LONG_FOR_CODEC = 10_000
"""Characters that any codec may have to read; some take quadratic time."""

_ESCAPED = 100
"""Characters that one character may become where a codec writes its name."""

_PIECE = 60
"""Bytes of a short text in a list."""

_LONG_TO_SPLIT = 1 << 16
_QUOTED = 12
"""Characters that one character may become in Python's notation."""


def operator_size(operator: str, left: Any, right: Any) -> int:
    """Return at most how many characters or elements `left operator right` has."""
    if isinstance(left, int) and isinstance(right, int):
        current.budget.check_number(left)
        current.budget.check_number(right)
        if operator == "**":
            return ENDLESS if abs(left) > 1 and right * left.bit_length() > LARGEST_NUMBER else 0
        return 0
    if operator == "*":
        return _repeated(left, right) if isinstance(right, int) else _repeated(right, left)
    if operator == "%" and isinstance(left, str | bytes):
        return percent_size(left, right)
    return 0


def _repeated(value: Any, times: Any) -> int:
    if not isinstance(times, int) or not isinstance(value, str | bytes | list | tuple):
        return 0
    weight = len(value) if isinstance(value, str | bytes) else 8 * current.budget.weigh(value)
    return weight * max(times, 0)


def percent_size(text: Any, arguments: Any) -> int:
    """Return at most how many characters `text % arguments` has."""
    plain = text.decode("latin-1") if isinstance(text, bytes) else str(text)
    values = list(arguments.values()) if isinstance(arguments, Mapping) else arguments
    values = values if isinstance(values, list | tuple) else [arguments]
    widest = max((value for value in values if isinstance(value, int)), key=abs, default=0)
    size = len(plain)
    heaviest = max(map(_text_size, values), default=0)
    for found in _SPECIFIER.finditer(plain):
        size += heaviest + sum(abs(widest) if width == "*" else _number(width) for width in found.groups(""))
    return size


def _number(digits: str) -> int:
    return ENDLESS if len(digits) > 9 else int(digits or 0)


def _text_size(value: Any) -> int:
    """Return at most how many characters the text of a value has."""
    if isinstance(value, str):
        return len(value)
    return _QUOTED * current.budget.weigh(value) if isinstance(value, bytes | list | tuple | dict) else 330


def format_size(text: str, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> int:
    """Return at most how many characters `text.format(*arguments, **named)` has."""
    values = [*arguments, *named.values()]
    values += [value for mapping in values if isinstance(mapping, Mapping) for value in mapping.values()]
    heaviest = max((_QUOTED * _text_size(value) for value in values), default=0)
    size = len(text)
    for _, field, specifier, _ in Formatter().parse(text):
        if field is None:
            continue
        size += heaviest + sum(map(_number, re.findall(r"\d+", specifier or "")))
        if "{" in (specifier or ""):
            size += sum(map(_as_width, values))
    return size


def _as_width(value: Any) -> int:
    """Return how wide a field becomes whose width is given by a value."""
    if isinstance(value, int):
        return abs(value)
    return sum(map(_number, re.findall(r"\d+", value))) if isinstance(value, str) else ENDLESS


def method_size(owner: Any, name: str, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> int:
    """Return at most how many characters or elements a method of a text, of bytes or a number returns."""
    estimate = _METHODS.get(name)
    try:
        return estimate(owner, *arguments, **named) if estimate is not None else 0
    except WRONG_ARGUMENTS:  # which the method refuses itself
        return 0


def _width(owner: Any, width: Any, fill: Any = None) -> int:
    return max(len(owner), int(width)) if isinstance(width, int) else 0


def _replaced(owner: Any, old: Any, new: Any, count: Any = -1) -> int:
    return replaced_size(owner, old, new, None if count < 0 else count)


def replaced_size(text: Any, old: Any, new: Any, count: Any = None) -> int:
    """Return at most how many characters a text has in which others stand for some."""
    found = text.count(old) if old else len(text) + 1
    return len(text) + (found if count is None else min(found, max(count, 0))) * len(new)


def joined_size(separator: Any, values: Any) -> int:
    """Return at most how many characters the texts of all values have, with a separator between them."""
    if not isinstance(values, str | list | tuple | dict):
        return 0
    return len(separator) * len(values) + sum(map(_text_size, values))


def listed(values: Any) -> Any:
    """Return values that can be looked at before they are joined."""
    looked_at = isinstance(values, str | bytes | list | tuple | dict) or not isinstance(values, Iterable)
    return values if looked_at else list(values)


def _translated(owner: Any, table: Any, *_: Any) -> int:
    values = table.values() if isinstance(table, dict) else table if isinstance(table, list | tuple) else ()
    return len(owner) * max((len(value) for value in values if isinstance(value, str)), default=1)


def _expanded(owner: Any, tabsize: Any = 8) -> int:
    tabs = owner.count(b"\t" if isinstance(owner, bytes) else "\t")
    return int(len(owner) + tabs * max(tabsize, 0))


def _coded(owner: Any, encoding: Any = "utf-8", errors: Any = "strict") -> int:
    quick = re.sub(r"[-_ ]", "", str(encoding).lower()) in _QUICK_CODECS
    if not quick and len(owner) > _LONG_FOR_CODEC:
        return ENDLESS
    return len(owner) * (4 if errors == "strict" else _ESCAPED)


def split_size(owner: Any, *_: Any, **__: Any) -> int:
    """Return at most how many bytes the pieces of a long text take."""
    return len(owner) * _PIECE // 4 if len(owner) > _LONG_TO_SPLIT else 0


def _bytes_of_number(owner: Any, length: Any = 1, *_: Any, **__: Any) -> int:
    return int(length)


_METHODS: Mapping[str, Callable[..., int]] = {
    "center": _width,
    "decode": _coded,
    "encode": _coded,
    "expandtabs": _expanded,
    "join": joined_size,
    "ljust": _width,
    "replace": _replaced,
    "rjust": _width,
    "rsplit": split_size,
    "split": split_size,
    "splitlines": split_size,
    "to_bytes": _bytes_of_number,
    "translate": _translated,
    "zfill": _width,
}
