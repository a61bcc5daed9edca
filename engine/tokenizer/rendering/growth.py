"""Size estimates of the results of operators and methods, made before they run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from string import Formatter
from typing import Any

from greenroom.engine.tokenizer.rendering.budget import LARGEST_NUMBER, current

ENDLESS = 1 << 60
"""Size that always exceeds the budget."""

WRONG_ARGUMENTS = (TypeError, ValueError, OverflowError, AttributeError)
"""Errors of a size estimate for arguments that the method or filter itself rejects."""

_SPECIFIER = re.compile(r"%(?:\([^)]*\))?[#0\- +]*(\*|\d*)(?:\.(\*|\d*))?")
_QUICK_CODECS = frozenset({"utf8", "ascii", "latin1", "iso88591", "utf16", "utf32"})
_LONG_FOR_CODEC = 10_000
"""Length in characters up to which any codec is allowed; some take quadratic time."""

_ESCAPED = 100
"""Number of characters that one character may become if a codec writes its name."""

_PIECE = 60
"""Size of a short text in a list, in bytes."""

_LONG_TO_SPLIT = 1 << 16
_QUOTED = 12
"""Number of characters that one character may become in Python's repr."""


def operator_size(operator: str, left: Any, right: Any) -> int:
    """Return an upper bound of the characters or elements of `left operator right`."""
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
    """Return an upper bound of the characters of `text % arguments`."""
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
    """Return an upper bound of the characters of a value's text."""
    if isinstance(value, str):
        return len(value)
    return _QUOTED * current.budget.weigh(value) if isinstance(value, bytes | list | tuple | dict) else 330


def format_size(text: str, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> int:
    """Return an upper bound of the characters of `text.format(*arguments, **named)`."""
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
    """Return the largest field width that a value may specify."""
    if isinstance(value, int):
        return abs(value)
    return sum(map(_number, re.findall(r"\d+", value))) if isinstance(value, str) else ENDLESS


def method_size(owner: Any, name: str, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> int:
    """Return an upper bound of the size of a method's result, for methods of text, bytes or numbers."""
    estimate = _METHODS.get(name)
    try:
        return estimate(owner, *arguments, **named) if estimate is not None else 0
    except WRONG_ARGUMENTS:  # The method itself rejects such arguments.
        return 0


def _width(owner: Any, width: Any, fill: Any = None) -> int:
    return max(len(owner), int(width)) if isinstance(width, int) else 0


def _replaced(owner: Any, old: Any, new: Any, count: Any = -1) -> int:
    return replaced_size(owner, old, new, None if count < 0 else count)


def replaced_size(text: Any, old: Any, new: Any, count: Any = None) -> int:
    """Return an upper bound of a text's length after replacement."""
    found = text.count(old) if old else len(text) + 1
    return len(text) + (found if count is None else min(found, max(count, 0))) * len(new)


def joined_size(separator: Any, values: Any) -> int:
    """Return an upper bound of the length of all values' texts, joined with a separator."""
    if not isinstance(values, str | list | tuple | dict):
        return 0
    return len(separator) * len(values) + sum(map(_text_size, values))


def listed(values: Any) -> Any:
    """Return values as a list if they can be iterated only once."""
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
    """Return an upper bound of the bytes of a long text's pieces."""
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
