"""Counts what one rendering of a chat template makes, and ends it where that is out of all proportion.

A template comes with a model's files, and anybody can have made those. Jinja's sandbox keeps it from the
machine, but not from its memory: one operator can ask for a text of many gigabytes in a single call of C,
which no watch sees and nothing interrupts.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from itertools import chain
from typing import Any

LARGEST_PLAIN = 1 << 20
"""Characters, or elements, of the largest value that any conversation may have made of it."""

ALTOGETHER_PLAIN = 16 << 20
"""Characters of all values together that any conversation may have made of it."""

STEPS_PLAIN = 1_000_000
"""Blocks entered, values printed and calls made that any conversation may take."""

_LARGEST_TIMES, _ALTOGETHER_TIMES, _STEPS_TIMES = 16, 256, 8
"""By how much each of the three grows with every character of the conversation."""

_MOST_FOR_PAIRS = 1 << 28
"""Characters that templates may make besides which write the conversation anew with every message."""

_MOST_STEPS_FOR_PAIRS = 100_000_000
LARGEST_NUMBER = 1 << 16
"""Bits that a whole number may have."""

_REMEMBERED = 64
"""Containers whose weight is known without counting again; each is kept alive as long."""

_OVERHEAD = 50
"""Bytes of an empty text or list, which are counted like characters."""

CONTAINERS = frozenset({list, tuple, dict})
_ATOMS = frozenset({bool, float, type(None)})


class TemplateLimitError(Exception):
    """A chat template makes more of a conversation than any honest one does."""


class Budget:
    """What is left to one rendering; it grows with the conversation, which is measured when that matters.

    The weight of a value is about the length of its text. No value may be heavier than `largest`: a list that
    holds another twice, which holds a third twice, is soon heavier than any memory without taking any.

    Args:
        inputs: What the template is given: `messages`, `tools` and the rest.
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
        """Count something that was done.

        Raises:
            TemplateLimitError: It was done too often.
        """
        self.steps -= count
        if self.steps < 0 and (self._grow() or self.steps < 0):
            raise TemplateLimitError("it takes too many steps")

    def expect(self, size: int) -> None:
        """Make sure that a value may be made.

        Args:
            size: Its characters or elements, at most.

        Raises:
            TemplateLimitError: It would be too large.
        """
        if (size > self.largest or size > self.room) and (
            self._grow() or size > self.largest or size > self.room
        ):
            raise TemplateLimitError("it makes texts or lists that are too large")

    def make(self, size: int) -> None:
        """Count a value that was made, or is about to be.

        Args:
            size: Its characters or elements.

        Raises:
            TemplateLimitError: It is too large, or all values together are.
        """
        self.room -= size + _OVERHEAD
        if (size > self.largest or self.room < 0) and (self._grow() or size > self.largest or self.room < 0):
            raise TemplateLimitError("it makes texts or lists that are too large")

    def keep(self, value: Any) -> Any:
        """Return a value that was made, counted.

        Raises:
            TemplateLimitError: It is too large.
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
        """Refuse whole numbers of thousands of digits, which are slow to compute with."""
        if isinstance(value, int) and value.bit_length() > LARGEST_NUMBER:
            raise TemplateLimitError("it computes with numbers that are too large")

    def hold(self, container: Any) -> Any:
        """Return a list, tuple or dict that was made, counted: itself to the memory, all of it by weight."""
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
        """Return about how many characters the text of a value has.

        Raises:
            TemplateLimitError: More than any value may have.
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
        """Give as much more as the conversation is large; return whether that was done before."""
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
    """Return the characters and elements of what a template is given, which is a tree."""
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
"""Budget of this thread's rendering; constants of a template are computed on that of the one before."""
