"""What engines have in common that keep nothing of one request for the next."""

from __future__ import annotations

from collections.abc import Callable


class CachelessEngine:
    """An engine without a cache: nothing is to be done while nobody asks, and nothing can be given back."""

    @property
    def idle_delay(self) -> float | None:
        """None: nothing is done while there is no work."""
        return None

    def work_idly(self) -> None:
        """Do nothing."""

    def on_memory_wanted(self, call: Callable[[], None]) -> None:
        """Keep nothing that others could want."""

    def release_memory(self) -> None:
        """Do nothing: memory is held only while something is computed."""
