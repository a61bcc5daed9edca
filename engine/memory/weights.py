"""Memory of a model's weights, charged to the account before they are loaded."""

from __future__ import annotations

from greenroom.engine.device.device_information import buffer_limit
from greenroom.engine.memory.account import MemoryAccount
from greenroom.engine.memory.device_memory import default_memory, device_memory
from greenroom.engine.memory.share import Share
from greenroom.schemas.logs import get_logger
from greenroom.schemas.models.capabilities import ModelType
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


def memory_need(
    account: MemoryAccount, model: str, kind: ModelType, nbytes: int, least: int | None = None
) -> int:
    """Return the bytes that the pool must grant for a load.

    A text model that exceeds the default limit, but not what the device can give, gets all of that limit: it
    is loaded alone. A model with vision is not, since its images need memory that nobody can foresee.
    Source: document 002, "Memory-Aware Loading".

    Args:
        nbytes: Bytes that the load needs.
        least: Part of these bytes that is certain; no model is refused for an estimate alone. By default all.
    """
    limit, most = account.limit, account.most
    if limit is not None and (nbytes if least is None else least) <= limit < nbytes:
        return limit
    if kind != "text" or limit is None or most is None or not limit < nbytes <= most:
        return nbytes
    log.warning("model fills the memory", model=model, required=nbytes, limit=limit, device=most)
    return limit


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
