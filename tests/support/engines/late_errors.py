"""Emulation on the CPU of GPU errors that arrive late: one launch gives wrong results, a later one raises."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import mlx.core as mx
import pytest

from greenroom.engine.kv_cache import caches

MESSAGE = "[METAL] Command buffer execution failed: Insufficient Memory (00000008:kIOGPUOutOfMemory)."


class LateError:
    """Spoils the results of one launch, and raises once from a later one, as MLX does on Metal.

    A launch is `mx.async_eval` or `mx.eval`. Reading a result of any launch since the spoiled one waits for
    the device, so the next launch raises at the latest. A read itself never raises. That is MLX's worst
    behaviour: `array::wait` ignores the errors of an array that is complete.

    Args:
        late: Number of launches from the spoiled one to the one that raises; 0 raises from the spoiled one.
        spoiled: Number of the launch to spoil, counted from here on.
        thread: Identifier of the thread whose launches count; by default this one.

    Attributes:
        thrown: True once the error was raised.
    """

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, late: int, spoiled: int = 1, thread: int | None = None
    ) -> None:
        self.thrown = False
        self._late = late
        self._left = spoiled
        self._thread = thread
        self._own_thread = threading.get_ident()
        self._stored = self._read = False
        self._cache: Any = None
        for name in ("async_eval", "eval"):
            monkeypatch.setattr(mx, name, self._launching(getattr(mx, name), waits=name == "eval"))
        for name in ("tolist", "item"):
            monkeypatch.setattr(mx.array, name, self._reading(getattr(mx.array, name)))
        monkeypatch.setattr(mx, "synchronize", self._waiting(mx.synchronize))
        monkeypatch.setattr(caches, "state", self._remembering(caches.state))

    @property
    def is_over(self) -> bool:
        """True if the error was raised, or nothing was spoiled yet."""
        return self.thrown or self._left > 0

    def _is_mine(self) -> bool:
        return threading.get_ident() == (self._own_thread if self._thread is None else self._thread)

    def _launching(self, launch: Any, *, waits: bool) -> Any:
        def launching(*arrays: Any, **options: Any) -> None:
            if not self._is_mine():
                launch(*arrays, **options)
                return
            if self._stored:
                self._late -= 1
                if self._late <= 0 or self._read:
                    self._throw()
            launch(*arrays, **options)
            self._left -= 1
            if self._left == 0:
                self._spoil(arrays)
                self._stored = True
                if self._late <= 0:
                    self._throw()
            if waits and self._stored:
                self._read = True

        return launching

    def _reading(self, read: Any) -> Any:
        def reading(array: Any, *arguments: Any) -> Any:
            value = read(array, *arguments)
            if self._stored and self._is_mine():
                self._read = True
            return value

        return reading

    def _waiting(self, wait: Any) -> Any:
        def waiting(*arguments: Any) -> None:
            wait(*arguments)
            if self._stored and self._is_mine():
                self._throw()

        return waiting

    def _remembering(self, state: Any) -> Any:
        def remembering(cache: Any) -> Any:
            if self._is_mine():
                self._cache = cache
            return state(cache)

        return remembering

    def _throw(self) -> None:
        self._stored, self.thrown = False, True
        raise RuntimeError(MESSAGE)

    def _spoil(self, arrays: Any) -> None:
        """Set the launch's results to zero. The KV cache too, since its state consists of views."""
        for array in _arrays_in(arrays):
            array[...] = mx.zeros_like(array)
        for layer in caches.flat_layers(self._cache or []):
            for name in ("keys", "values"):
                if isinstance(tensor := getattr(layer, name, None), mx.array):
                    setattr(layer, name, mx.zeros_like(tensor))


def _arrays_in(tree: Any) -> Iterator[mx.array]:
    """Yield the arrays in nested lists and dictionaries."""
    if isinstance(tree, mx.array):
        yield tree
    elif isinstance(tree, dict):
        yield from _arrays_in(tuple(tree.values()))
    elif isinstance(tree, list | tuple):
        for each in tree:
            yield from _arrays_in(each)
