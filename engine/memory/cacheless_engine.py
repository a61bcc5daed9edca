"""Base class of engines that keep no state between requests."""

from __future__ import annotations

from collections.abc import Callable


class CachelessEngine:
    """Engine without a cache: it has no idle work and no memory to release."""

    @property
    def idle_delay(self) -> float | None:
        """Delay before idle work; always None."""
        return None

    def work_idly(self) -> None:
        """Do nothing."""

    def on_memory_wanted(self, call: Callable[[], None]) -> None:
        """Ignore the callback: there is no memory to release."""

    def release_memory(self) -> None:
        """Do nothing: memory is held only during computation."""

    def release_caches(self) -> None:
        """Do nothing: there are no caches."""
