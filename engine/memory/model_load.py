"""The load of one model: what engines of every kind are opened from."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import attrs

from greenroom.engine.device.device_errors import synchronize_streams
from greenroom.engine.memory.account import MemoryAccount, Share
from greenroom.engine.memory.weights import charge_weights
from greenroom.schemas.capabilities import CapabilityRecord
from greenroom.schemas.settings import Settings


@attrs.frozen(eq=False)
class ModelLoad:
    """A model that is being loaded, on the thread to which everything then belongs.

    Args:
        progress: Called with the fraction of the weights that are in memory, 0 to 1.
        is_abandoned: Called between chunks of the weights; returns whether to stop.
        account: Of memory, shared by all models of the process; one of its own by default.
        clock: Seconds, from any origin, by which the engine times what it computes.
    """

    folder: Path
    record: CapabilityRecord
    settings: Settings
    progress: Callable[[float], None] = lambda fraction: None
    is_abandoned: Callable[[], bool] = lambda: False
    account: MemoryAccount = attrs.field()
    clock: Callable[[], float] = time.perf_counter

    @account.default
    def _own_account(self) -> MemoryAccount:
        return MemoryAccount(self.settings.memory_bytes, self.settings.kv_cache_bytes)

    @contextmanager
    def open_share(self) -> Iterator[tuple[Share, Callable[[int], None]]]:
        """Open the model's share of the account, which closes again if the load fails.

        A load that has come to its end has failed all the same if the device has: its weights may be wrong.

        Returns:
            The share, and what is to be called with the bytes of weights before they are read; it raises
            ProblemError, a 507, if there is no room for them.
        """
        share = self.account.open_share()
        try:
            yield share, partial(charge_weights, self.account, share, self.folder.name)
            synchronize_streams()
        except BaseException:
            share.close()
            raise
