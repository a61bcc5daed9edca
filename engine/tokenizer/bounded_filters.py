"""Jinja's filters, with the size of their result estimated before they run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import update_wrapper
from typing import Any

from jinja2.filters import make_attrgetter
from jinja2.utils import pass_environment

from greenroom.engine.tokenizer.template_budget import (
    ENDLESS,
    WRONG_ARGUMENTS,
    current,
    joined_size,
    listed,
    percent_size,
    replaced_size,
    split_size,
)

_Filter = Callable[..., Any]

_PICKING = frozenset({"attr", "count", "d", "default", "first", "items", "last", "length", "random"})
"""Filters that return an existing value or a number, in constant time."""

_COPYING = frozenset({"capitalize", "e", "escape", "lower", "string", "title", "trim", "upper"})
"""Filters that return a copy of a text, longer by a small factor at most."""

_LITTLE = 1_000  # Number of characters or elements that a filter processes free of charge

_LONGEST_INDENT = 100
_MOST_DIGITS = 400


def bound_filter(name: str, unbound: _Filter) -> _Filter:
    """Return a filter that charges the budget and refuses to create values that are too large. Raises
    TemplateLimitError: raised by the returned filter.
    """
    if name in _PICKING:
        return unbound
    given = 1 if hasattr(unbound, "jinja_pass_arg") else 0
    size_of = _SIZES.get(name)

    def bounded(*arguments: Any, **named: Any) -> Any:
        budget = current.budget
        if name == "join" and len(arguments) > given:
            arguments = (*arguments[:given], listed(arguments[given]), *arguments[given + 1 :])
        if len(arguments) > given and len(looked_at := _sized(arguments[given])) > _LITTLE:
            budget.step(len(looked_at) >> 5)
        if size_of is not None:
            budget.expect(_estimate(size_of, arguments[given:], named))
        return budget.keep(unbound(*arguments, **named))

    def copied(value: Any, *arguments: Any, **named: Any) -> Any:
        result = unbound(value, *arguments, **named)
        if result.__class__ is str and len(result) < _LITTLE:
            return result
        current.budget.step(len(result) >> 5 if result.__class__ is str else 1)
        return current.budget.keep(result)

    return update_wrapper(copied if name in _COPYING else bounded, unbound)


def _sized(value: Any) -> Any:
    return value if isinstance(value, str | list | tuple | dict | range) else ()


def _estimate(size_of: Callable[..., int], arguments: tuple[Any, ...], named: Mapping[str, Any]) -> int:
    try:
        return size_of(*arguments, **named)
    except WRONG_ARGUMENTS:  # The filter itself rejects such arguments.
        return 0


@pass_environment
def add_up(environment: Any, values: Any, attribute: Any = None, start: Any = 0) -> Any:
    """Return the sum of all values like the filter `sum`, with each intermediate list charged."""
    if attribute is not None:
        values = map(make_attrgetter(environment, attribute), values)
    if isinstance(start, str | bytes):
        return sum(values, start)  # Python's `sum` raises its own error for texts.
    for value in values:
        current.budget.step()
        start = environment.call_binop(None, "+", start, value)
    return start


def _length(value: Any) -> int:
    return len(value) if hasattr(value, "__len__") else len(str(value))


def _center(value: Any, width: Any = 80) -> int:
    return int(width)


def _indent(value: Any, width: Any = 4, first: Any = False, blank: Any = False) -> int:
    each = len(width) if isinstance(width, str) else max(int(width), 0)
    return _length(value) + (len(value.splitlines()) + 1) * each


def _wordwrap(
    value: Any, width: Any = 79, break_long_words: Any = True, wrapstring: Any = None, *_: Any, **__: Any
) -> int:
    between = len(wrapstring) if isinstance(wrapstring, str) else 1
    return max(len(value) * (1 + between), split_size(value))


def _replace(value: Any, old: Any, new: Any, count: Any = None) -> int:
    return replaced_size(str(value), str(old), str(new), count)


def _join(values: Any, d: Any = "", attribute: Any = None) -> int:
    if attribute is None:
        return joined_size(str(d), values)
    return len(str(d)) * len(values) + 12 * current.budget.weigh(values)


def _format(value: Any, *arguments: Any, **named: Any) -> int:
    return percent_size(str(value), named or arguments)


def _tojson(
    value: Any, ensure_ascii: Any = False, indent: Any = None, separators: Any = None, sort_keys: Any = False
) -> int:
    each = len(indent) if isinstance(indent, str) else int(indent or 0)
    between = sum(map(len, separators)) if separators else 4
    if max(each, between) > _LONGEST_INDENT:
        return ENDLESS
    weight = current.budget.weigh(value)
    known = weight + weight // 4 * between if between > 4 else 2 * weight
    return known + (each * _depths(value) if each > 0 else 0)


def _depths(value: Any) -> int:
    depth, total, level = 1, 0, [value]
    while level:
        total += depth * len(level)
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list | tuple)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        depth += 1
    return total


def _pprint(value: Any) -> int:
    weight = current.budget.weigh(value)
    return weight * max(16, weight >> 4)


def _urlize(
    value: Any, trim: Any = None, nofollow: Any = False, target: Any = "", rel: Any = "", *_: Any, **__: Any
) -> int:
    return _length(value) * (8 + _length(target or "") + _length(rel or ""))


def _batch(value: Any, linecount: Any, fill_with: Any = None) -> int:
    return 8 * int(linecount)


def _slice(value: Any, slices: Any, fill_with: Any = None) -> int:
    return 64 * int(slices)


def _round(value: Any, precision: Any = 0, method: Any = "common") -> int:
    return ENDLESS if abs(int(precision)) > _MOST_DIGITS else 0


def _elements(value: Any, *_: Any, **__: Any) -> int:
    return 8 * len(value) if isinstance(value, str) else 0


_SIZES: Mapping[str, Callable[..., int]] = {
    "batch": _batch,
    "center": _center,
    "format": _format,
    "indent": _indent,
    "join": _join,
    "list": _elements,
    "pprint": _pprint,
    "replace": _replace,
    "round": _round,
    "slice": _slice,
    "tojson": _tojson,
    "urlize": _urlize,
    "wordcount": split_size,
    "wordwrap": _wordwrap,
}
