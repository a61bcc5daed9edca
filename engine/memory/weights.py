"""Memory of a model's weights, charged to the account before they are loaded."""

from __future__ import annotations

from greenroom.engine.device.device_information import buffer_limit
from greenroom.engine.memory.account import MemoryAccount
from greenroom.engine.memory.device_memory import default_memory, device_memory
from greenroom.engine.memory.share import Share
from greenroom.schemas.logs import get_logger
from greenroom.schemas.models.capabilities import ModelType
from greenroom.schemas.models.memory_need import MemoryNeed, memory_need
from greenroom.schemas.problems import NoRoomError

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
    """Return the memory that the pool must grant for a load, within the account's limits.

    Args:
        model: Name of the model, for a warning if it is loaded alone.
        total: Bytes that it needs.
        least: Part of these that is certain.
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
    """Charge further weights of a model, such as those of its draft model, before they are loaded.

    Raises:
        NoRoomError: 507: they do not fit.
    """
    set_limits(account)
    before = share.weights
    room = share.charge_weights(before + nbytes)
    if room is not None:
        raise NoRoomError(model, nbytes, room - before)
