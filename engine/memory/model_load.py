"""Inputs of a model load, shared by engines of every kind."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import attrs

from greenroom.engine.device.device_errors import synchronize_streams
from greenroom.engine.memory.account import MemoryAccount
from greenroom.engine.memory.residence import Residence
from greenroom.engine.memory.share import Share
from greenroom.engine.memory.weights import charge_weights
from greenroom.schemas.models.capabilities import CapabilityRecord
from greenroom.schemas.settings.settings import Settings


@attrs.frozen(eq=False)
class ModelLoad:
    """The load of one model, on the thread that the model then belongs to.

    Args:
        folder: Folder of the model.
        record: Capability record of the model.
        settings: Settings of the model.
        progress: Callback that takes the fraction of the weights in memory, 0 to 1.
        is_abandoned: Callback between chunks of the weights; returns True to stop the load.
        account: Memory account of the process's models; a new one by default.
        clock: Clock in seconds, from any origin, for the engine's timings.
        residence: Measurements of the model's memory.
    """

    folder: Path
    record: CapabilityRecord
    settings: Settings
    progress: Callable[[float], None] = lambda fraction: None
    is_abandoned: Callable[[], bool] = lambda: False
    account: MemoryAccount = attrs.field()
    clock: Callable[[], float] = time.perf_counter
    residence: Residence = attrs.field()

    @account.default
    def _own_account(self) -> MemoryAccount:
        return MemoryAccount(self.settings.memory_bytes, self.settings.kv_cache_bytes)

    @residence.default
    def _new_residence(self) -> Residence:
        return Residence(self.account)

    @contextmanager
    def open_share(self) -> Iterator[tuple[Share, Callable[[int], None]]]:
        """Open the model's share of the account; close it if the load fails.

        A finished load also fails if the device has failed, since the weights may then be wrong.

        Returns:
            The share, and a function to call with the bytes of weights before they are loaded; it raises
                ProblemError 507 if they do not fit.
        """
        share = Share(self.account)
        self.residence.begin(share)
        try:
            yield share, partial(charge_weights, self.account, share, self.folder.name)
            synchronize_streams()
        except BaseException:
            share.close()
            raise
        finally:
            self.residence.end_load()
