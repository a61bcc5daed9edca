"""Budget of a chat template's rendering, which ends excessive ones.

Anybody may have written a model's template. Jinja's sandbox protects the machine but not its memory: one
operator can create a text of many gigabytes in a single C call, which cannot be interrupted.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from itertools import chain
from typing import Any

LARGEST_PLAIN = 1 << 20
"""Largest value that a template may create for any conversation, in characters or elements."""

ALTOGETHER_PLAIN = 16 << 20
"""Total size of the values that a template may create for any conversation, in characters."""

STEPS_PLAIN = 1_000_000
"""Number of blocks entered, values printed and calls made that any conversation may take."""

_LARGEST_TIMES, _ALTOGETHER_TIMES, _STEPS_TIMES = 16, 256, 8
"""Increase of each of the three limits per character of the conversation."""

_MOST_FOR_PAIRS = 1 << 28
"""Further characters for templates that copy the conversation with every message."""

_MOST_STEPS_FOR_PAIRS = 100_000_000
LARGEST_NUMBER = 1 << 16
"""Limit on the bits of an integer."""

_REMEMBERED = 64
"""Number of containers whose weight is cached; the cache keeps them alive."""

_OVERHEAD = 50
"""Overhead of a text or list in bytes, counted like characters."""

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
        """Charge a number of steps.

        Raises:
            TemplateLimitError: The template takes too many steps.
        """
        self.steps -= count
        if self.steps < 0 and (self._grow() or self.steps < 0):
            raise TemplateLimitError("it takes too many steps")

    def expect(self, size: int) -> None:
        """Check that a value may be created.

        Args:
            size: Upper bound of its characters or elements.

        Raises:
            TemplateLimitError: The value would be too large.
        """
        if (size > self.largest or size > self.room) and (
            self._grow() or size > self.largest or size > self.room
        ):
            raise TemplateLimitError("it makes texts or lists that are too large")

    def make(self, size: int) -> None:
        """Charge a value that was, or is about to be, created.

        Args:
            size: Number of its characters or elements.

        Raises:
            TemplateLimitError: The value is too large, or all values together are.
        """
        self.room -= size + _OVERHEAD
        if (size > self.largest or self.room < 0) and (self._grow() or size > self.largest or self.room < 0):
            raise TemplateLimitError("it makes texts or lists that are too large")

    def keep(self, value: Any) -> Any:
        """Charge a created value and return it.

        Raises:
            TemplateLimitError: The value is too large.
        """
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
        """Return the approximate number of characters in a value's text.

        Raises:
            TemplateLimitError: The text is longer than allowed.
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
    """Return the number of characters and elements in a template's variables, which form a tree."""
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
