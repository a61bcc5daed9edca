"""Budget of a chat template's rendering, which ends excessive ones.

Anybody may have written a model's template. Jinja's sandbox protects the machine but not its memory: one
operator can create a text of many gigabytes in a single C call, which cannot be interrupted.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from string import Formatter
from typing import Any

LARGEST_PLAIN = 1 << 20
"""Largest value that a template may create for any conversation, in characters or elements."""

ALTOGETHER_PLAIN = 16 << 20
"""Total size of the values that a template may create for any conversation, in characters."""

STEPS_PLAIN = 1_000_000
"""Number of blocks entered, values printed and calls made that any conversation may take."""

_LARGEST_TIMES, _ALTOGETHER_TIMES, _STEPS_TIMES = 16, 256, 8
"""Increase of each of the three limits per character of the conversation."""

_MOST_FOR_PAIRS = 1 << 28  # Further characters for templates that copy the conversation with every message

_MOST_STEPS_FOR_PAIRS = 100_000_000
LARGEST_NUMBER = 1 << 16  # Limit on the bits of an integer

_REMEMBERED = 64  # Number of containers whose weight is cached; the cache keeps them alive

_OVERHEAD = 50  # Overhead of a text or list in bytes, counted like characters

CONTAINERS = frozenset({list, tuple, dict})
_ATOMS = frozenset({bool, float, type(None)})


class TemplateLimitError(Exception):
    """A chat template creates far more from a conversation than real templates do."""


class Budget:
    """The remaining budget of one rendering; it grows with the conversation, measured when first needed.

    A value's weight is about the length of its text. No value may be heavier than `largest`: lists that
    contain one another twice soon weigh more than any memory holds without using any.

    Args:
        inputs: Variables of the template: `messages`, `tools` and others.
    """

    __slots__ = ("_inputs", "_known", "_measured", "largest", "room", "steps")

    def __init__(self, inputs: Mapping[str, Any]) -> None:
        self.steps = STEPS_PLAIN
        self.room = ALTOGETHER_PLAIN
        self.largest = LARGEST_PLAIN
        self._inputs = inputs
        self._measured = False
        self._known: dict[int, tuple[Any, int]] = {}

    def step(self, count: int = 1) -> None:
        """Charge a number of steps. Raises TemplateLimitError: the template takes too many steps."""
        self.steps -= count
        if self.steps < 0 and (self._grow() or self.steps < 0):
            raise TemplateLimitError("it takes too many steps")

    def expect(self, size: int) -> None:
        """Check that a value may be created. `size`: upper bound of its characters or elements. Raises
        TemplateLimitError: the value would be too large.
        """
        if (size > self.largest or size > self.room) and (
            self._grow() or size > self.largest or size > self.room
        ):
            raise TemplateLimitError("it makes texts or lists that are too large")

    def make(self, size: int) -> None:
        """Charge a value that was, or is about to be, created. Raises TemplateLimitError: the value is too
        large, or all values together are.
        """
        self.room -= size + _OVERHEAD
        if (size > self.largest or self.room < 0) and (self._grow() or size > self.largest or self.room < 0):
            raise TemplateLimitError("it makes texts or lists that are too large")

    def keep(self, value: Any) -> Any:
        """Charge a created value and return it. Raises TemplateLimitError: the value is too large."""
        kind = value.__class__
        if kind is str:
            self.make(len(value))
        elif kind in CONTAINERS:
            self.hold(value)
        elif kind in _ATOMS:
            pass
        elif isinstance(value, int):
            self.check_number(value)
        elif isinstance(value, str | bytes | list | tuple | dict):  # Markup, groups of a filter
            self.make(len(value))
            self.weigh(value)
        return value

    def check_number(self, value: Any) -> None:
        """Refuse integers with thousands of digits, which are slow to compute with."""
        if isinstance(value, int) and value.bit_length() > LARGEST_NUMBER:
            raise TemplateLimitError("it computes with numbers that are too large")

    def hold(self, container: Any) -> Any:
        """Charge a new list, tuple or dict and return it: its own size as memory, its content by weight."""
        self.make(8 * len(container))
        known = self._known
        weight = len(container)
        for value in chain(container, container.values()) if container.__class__ is dict else container:
            kind = value.__class__
            if kind is str:
                weight += len(value)
            elif kind not in _ATOMS and kind is not int:
                weight += known[id(value)][1] if id(value) in known else self._remember(value)
        self.step(len(container) >> 3)
        if weight > self.largest:
            self.expect(weight)
        self._note(container, weight)
        return container

    def weigh(self, value: Any) -> int:
        """Return the approximate number of characters in a value's text. Raises TemplateLimitError: the text
        is longer than allowed.
        """
        weight, counted, pending = 0, 0, [value]
        while pending:
            value = pending.pop()
            counted += 1
            if isinstance(value, str | bytes):
                weight += len(value)
                continue
            weight += 1
            if isinstance(value, dict):
                pending.extend(value)
                pending.extend(value.values())
            elif isinstance(value, list | tuple):
                pending.extend(value)
            if weight > self.largest:
                self.step(counted >> 3)
                counted = 0
                self.expect(weight)
        self.step(counted >> 3)
        return weight

    def _remember(self, value: Any) -> int:
        weight = self.weigh(value)
        if value.__class__ in CONTAINERS:
            self._note(value, weight)
        return weight

    def _note(self, container: Any, weight: int) -> None:
        known = self._known
        if len(known) >= _REMEMBERED:
            del known[next(iter(known))]
        known[id(container)] = (container, weight)

    def _grow(self) -> bool:
        """Raise the limits in proportion to the conversation; return whether that was already done."""
        if self._measured:
            return True
        self._measured = True
        size = _size(self._inputs)
        messages = self._inputs.get("messages")
        turns = len(messages) if isinstance(messages, list) else 0
        self.largest += _LARGEST_TIMES * size
        self.room += _ALTOGETHER_TIMES * size + min(size * turns, _MOST_FOR_PAIRS)
        self.steps += _STEPS_TIMES * size + min(turns * turns, _MOST_STEPS_FOR_PAIRS)
        return False


def _size(value: Any) -> int:
    size, pending = 0, [value]
    while pending:
        value = pending.pop()
        size += len(value) if isinstance(value, str) else 1
        if isinstance(value, Mapping):
            pending.extend(value)
            pending.extend(value.values())
        elif isinstance(value, list | tuple):
            pending.extend(value)
    return size


class _Thread(threading.local):
    def __init__(self) -> None:
        self.budget = Budget({})


current = _Thread()
"""Budget of this thread's rendering; a template's constants are charged to the previous rendering's."""


ENDLESS = 1 << 60  # Size that always exceeds the budget

WRONG_ARGUMENTS = (TypeError, ValueError, OverflowError, AttributeError)
"""Errors of a size estimate for arguments that the method or filter itself rejects."""

_SPECIFIER = re.compile(r"%(?:\([^)]*\))?[#0\- +]*(\*|\d*)(?:\.(\*|\d*))?")
_QUICK_CODECS = frozenset({"utf8", "ascii", "latin1", "iso88591", "utf16", "utf32"})
_LONG_FOR_CODEC = 10_000  # Length in characters up to which any codec is allowed; some take quadratic time

_ESCAPED = 100  # Number of characters that one character may become if a codec writes its name

_PIECE = 60  # Size of a short text in a list, in bytes

_LONG_TO_SPLIT = 1 << 16
_QUOTED = 12  # Number of characters that one character may become in Python's repr


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
    if isinstance(value, str):
        return len(value)
    return _QUOTED * current.budget.weigh(value) if isinstance(value, bytes | list | tuple | dict) else 330


def format_size(text: str, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> int:
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
