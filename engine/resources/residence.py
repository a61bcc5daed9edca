"""The memory of one loaded model, from its load to its unload, and the base of engines without caches."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from pathlib import Path

import attrs
import mlx.core as mx

from greenroom.engine.resources.device_errors import buffer_limit, synchronize_streams
from greenroom.engine.resources.device_memory import default_memory, device_memory
from greenroom.engine.resources.memory_account import MemoryAccount, Share
from greenroom.schemas.logs import get_logger
from greenroom.schemas.models.capabilities import CapabilityRecord, ModelType
from greenroom.schemas.models.model_description import MemoryNeed, memory_need
from greenroom.schemas.problems import NoRoomError
from greenroom.schemas.settings.settings import Settings

_TOLERANCE = 0.05  # Fraction of the expected bytes that an unload may leave without a warning

_SLACK = 2 << 20  # Bytes that an unload may leave in any case: kernels, random state and the like

_loading: ContextVar[Residence | None] = ContextVar("loading", default=None)


@attrs.frozen
class Freed:
    """The memory that an unload has freed.

    Args:
        expected: Bytes that were charged to the model.
        nbytes: Bytes that are free again.
        measured: False if other models computed or loaded meanwhile: `nbytes` is then computed from the
            weights that are gone.
        held: Descriptions of what is still in memory; empty if the difference is small.
    """

    expected: int
    nbytes: int
    measured: bool = True
    held: tuple[str, ...] = ()


class Residence:
    """The measurements of one model's memory.

    Only weak references to the weights are kept, by which an unload finds those that something still holds.

    Attributes:
        working: Bytes that steps took beyond what was charged; None before the first measurement.
    """

    def __init__(self, account: MemoryAccount) -> None:
        self.working: int | None = None
        self._account = account
        self._share: Share | None = None
        self._weights: list[tuple[str, int, weakref.ref[mx.array]]] = []
        self._charged: int | None = None
        self._uncharged = 0
        self._expected = self._active = self._changes = self._step_changes = 0
        self._alone = False

    def begin(self, share: Share) -> None:
        """Begin a load: until `end_load`, `watch_weights` on this thread records weights of this model."""
        self._share = share
        share.loading = True
        _loading.set(self)

    def end_load(self) -> None:
        _loading.set(None)
        if self._share is not None:
            self._share.loading = False

    def add_weights(self, weights: Iterable[tuple[str, mx.array]]) -> None:
        """Remember arrays of the model by weak references."""
        self._weights += [(name, array.nbytes, weakref.ref(array)) for name, array in weights]

    def observe_step(self) -> None:
        """Measure the memory that the step before took; other models must neither compute nor load."""
        if self._share is None:
            return
        charged, before = self._account.charged, self._step_changes
        self._step_changes = self._account.changes_of_others(self._share)
        if self._account.others_active(self._share):
            self._charged = None
        else:
            # A model that came and went during the step has changed its charges.
            if self._charged is not None and self._step_changes == before:
                beyond = mx.get_peak_memory() - max(charged, self._charged) - self._uncharged
                self.working = max(0, beyond, self.working or 0)
            self._charged = charged
            # What else is in memory now belongs to the rest of the process, not to the next step.
            self._uncharged = max(0, mx.get_active_memory() - charged)
        mx.reset_peak_memory()

    def measure(self, release: Callable[[], None]) -> int:
        """Return the bytes that a release of caches has freed; 0 if other models took more meanwhile."""
        before = mx.get_active_memory() + mx.get_cache_memory()
        release()
        mx.clear_cache()
        return max(0, before - mx.get_active_memory() - mx.get_cache_memory())

    def begin_unload(self) -> None:
        """Record the state before the engine is closed."""
        share = self._share
        if share is not None:
            self._expected = share.weights + share.running + share.cached
            self._alone = not self._account.others_active(share)
            self._changes = self._account.changes_of_others(share)
        self._active = mx.get_active_memory()

    def end(self) -> Freed:
        """Return the memory that the unload has freed; call it when the engine and its caches are gone."""
        alive = [(name, nbytes) for name, nbytes, array in self._weights if array() is not None]
        held = sum(nbytes for _, nbytes in alive)
        measured = self._is_undisturbed()
        freed = self._active - mx.get_active_memory() if measured else self._expected - held
        missing = max(self._expected - freed, held)
        if missing <= max(_SLACK, _TOLERANCE * self._expected):
            return Freed(self._expected, max(0, freed), measured)
        return Freed(self._expected, max(0, freed), measured, _names_of(alive, missing - held))

    def _is_undisturbed(self) -> bool:
        if self._share is None or not self._alone or self._account.others_active(self._share):
            return False
        return self._account.changes_of_others(self._share) == self._changes


def watch_weights(weights: Iterable[tuple[str, mx.array]]) -> None:
    """Remember weights that have been read as those of the model that this thread loads, if there is one."""
    residence = _loading.get()
    if residence is not None:
        residence.add_weights(weights)


def _names_of(alive: list[tuple[str, int]], others: int) -> tuple[str, ...]:
    """Return descriptions of weights that are still in memory, and of `others` bytes of other arrays."""
    held = []
    if alive:
        largest, _ = max(alive, key=lambda each: each[1])
        more = f" and {len(alive) - 1} others" if len(alive) > 1 else ""
        held.append(f"weights {largest}{more}: {sum(nbytes for _, nbytes in alive)} bytes")
    if others > _SLACK:
        held.append(f"caches or temporary results: {others} bytes")
    return tuple(held)


log = get_logger(__name__)


def set_limits(account: MemoryAccount) -> None:
    """Set the account's missing limits from this thread's device, and log them the first time."""
    if account.set_default_limits(default_memory(), buffer_limit(), device_memory()):
        log.info(
            "memory limits",
            actor="pool",
            bytes=account.limit,
            kv_bytes=account.kv_limit,
            prefix_buffers=account.buffers.cached_limit,
        )


def need_within(account: MemoryAccount, model: str, kind: ModelType, total: int, least: int) -> MemoryNeed:
    """Return the memory that the pool must grant for a load, within the account's limits. `total`: bytes that
    it needs.
    """
    need = memory_need(kind, total, least, account.limit, account.most)
    if need.alone:
        log.warning(
            "model fills the memory",
            model=model,
            required=need.total,
            limit=account.limit,
            device=account.most,
        )
    return need


def charge_weights(account: MemoryAccount, share: Share, model: str, nbytes: int) -> None:
    """Charge further weights of a model, such as those of its draft model, before they are loaded. Raises
    NoRoomError: 507: they do not fit.
    """
    set_limits(account)
    before = share.weights
    room = share.charge_weights(before + nbytes)
    if room is not None:
        raise NoRoomError(model, nbytes, room - before)


@attrs.frozen(eq=False)
class ModelLoad:
    """The load of one model, on the thread that the model then belongs to.

    Args:
        progress: Callback that takes the fraction of the weights in memory, 0 to 1.
        is_abandoned: Callback between chunks of the weights; returns True to stop the load.
        account: Memory account of the process's models; a new one by default.
        clock: Clock in seconds, from any origin, for the engine's timings.
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
