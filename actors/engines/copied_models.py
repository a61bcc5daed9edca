"""The copies of models, for all threads that look up or list names."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from greenroom.schemas.models.model_copy import ModelCopy
from greenroom.schemas.settings.profiles import Profile


class CopiedModels:
    """Copies by name; all methods may be called on any thread."""

    def __init__(self) -> None:
        self._read: Callable[[], Iterable[ModelCopy]] = tuple
        self._copies: dict[str, ModelCopy] = {}
        self._lock = threading.Lock()

    def connect(self, read: Callable[[], Iterable[ModelCopy]]) -> None:
        """Set the reader of the copies that earlier processes have stored.

        Args:
            read: Reader of these; called once, on the thread that first asks.
        """
        self._read = read

    def known(self) -> dict[str, ModelCopy]:
        """Return the copies, the oldest first. The first call may read the disk."""
        with self._lock:
            return dict(self._all())

    def find(self, name: str) -> Profile | None:
        """Return the profile of a copy, by its name with or without `:latest`; None if there is none."""
        with self._lock:
            copy = self._all().get(name.removesuffix(":latest"))
        return None if copy is None else copy.profile

    def record(self, copy: ModelCopy) -> None:
        """Record a new copy, in place of an earlier one of its name."""
        with self._lock:
            self._all()[copy.name] = copy

    def forget(self, name: str) -> None:
        """Forget a copy."""
        with self._lock:
            self._all().pop(name, None)

    def _all(self) -> dict[str, ModelCopy]:
        before, self._read = self._read(), tuple
        self._copies = {copy.name: copy for copy in before} | self._copies
        return self._copies
